"""OpenTelemetry: traces of what clients and brokers do with messages; needs leveret[otel].
docs/guides/opentelemetry.md.

`TracedChannel` (leveret.otel.client) is for programs, `leveret otel` (leveret.otel.recorder) beside a broker.
"""
