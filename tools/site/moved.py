"""Old names of pages, and the small pages at the old addresses that redirect to the new ones."""

from __future__ import annotations

from html import escape

MOVED = {
    "CLIENT": "guides/cancelled-calls",
    "QUEUES": "guides/queues",
    "DELAY": "guides/delayed-delivery",
    "DELAYED_EXCHANGE": "guides/delayed-exchange",
    "DELAY_TOOLS": "reference/delay-tools",
    "TIME": "reference/broker-clock",
    "ENDPOINT": "guides/endpoints",
    "TIMEOUTS": "guides/legacy-timeouts",
    "FEDERATION": "guides/federation",
    "STREAMS": "guides/streams",
    "STREAMS_AS_TABLES": "guides/streams-as-tables",
    "ICEBERG": "guides/iceberg",
    "STAGES": "guides/stages",
    "QUERIES": "reference/lists-counters-rates",
    "DURABILITY": "internals/durability",
    "SPARK": "guides/spark/source-and-sink",
    "PIPELINES": "guides/spark/pipelines",
    "ARCHIVE": "guides/spark/archive",
    "REPLAY": "guides/spark/replay",
    "SCHEDULE": "guides/spark/schedule",
    "ENRICH": "guides/spark/enrich",
    "AUDIT": "guides/spark/audit",
    "DEADLETTERS": "guides/spark/deadletters",
    "DEMO": "guides/demo",
    "WEB": "guides/web-page",
    "WEB_MAPS": "guides/web-page-drawings",
    "EXPLAIN": "guides/explain-and-browse",
    "TRACE": "guides/trace-a-message",
    "TRACING": "guides/opentelemetry",
    "TOP": "reference/top",
    "DOCTOR": "reference/doctor",
    "BENCH": "reference/bench",
    "METRICS": "reference/metrics",
    "CONFIGURATION": "reference/configuration",
    "SHIPPING": "guides/production",
    "SECURITY": "guides/security",
    "TESTING": "guides/testing",
    "CTL": "reference/ctl",
    "HTTP_API": "reference/http-api",
    "ACCESS": "reference/users-and-permissions",
    "POLICIES": "reference/policies",
    "DEFINITIONS": "reference/definitions",
    "TLS": "guides/tls",
    "BACKUP": "guides/backup",
    "MIGRATION": "guides/migration",
    "GROWTH": "guides/growth",
    "COMPATIBILITY": "reference/compatibility",
    "CONFORMANCE": "reference/conformance",
    "SIMULATION": "guides/simulation",
    "INSIDE": "internals/how-it-works",
    "PERFORMANCE": "internals/performance",
    "CURVES": "internals/cost-curves",
    "CLIFFS": "internals/noisy-neighbours",
    "ARCHITECTURE": "internals/architecture",
    "COMPARISON": "internals/comparison",
    "glossary": "internals/glossary",
}
"""Old name of a page -> new name, both below docs/ and without suffix."""


def redirect(target: str) -> str:
    """Return a page that redirects to another one. A script keeps the part after #, if scripts are enabled."""
    address = escape(f"{target}.html")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{address}">
<meta name="robots" content="noindex">
<script>location.replace("{address}" + location.hash)</script>
<meta http-equiv="refresh" content="0; url={address}">
</head>
<body>This page has moved to <a href="{address}">{address}</a>.</body>
</html>
"""
