"""A sample of a broker as plain text, and as JSON for scripts."""

from __future__ import annotations

from typing import Any

from leveret.cli.top.sources import SampleRequest, SampleSource, Snapshot
from leveret.cli.top.views import VIEWS, Item, View, arranged, at, cell, fitting, octets


def headline(snapshot: Snapshot) -> str:
    """Return the broker's totals on one line."""
    overview = snapshot.overview
    totals, messages = overview.get("object_totals", {}), overview.get("queue_totals", {})
    product = f"leveret {overview['leveret_version']}" if "leveret_version" in overview else "RabbitMQ"
    if product == "RabbitMQ":
        product += f" {overview.get('rabbitmq_version', '')}"
    parts = [f"{product} {overview.get('cluster_name', '')}"]
    parts += [f"{totals.get(name, 0):,} {name}" for name in ("connections", "channels", "consumers", "queues")]
    parts.append(f"{messages.get('messages_ready', 0):,} ready, {messages.get('messages_unacknowledged', 0):,} unacked")
    return " · ".join(parts)


def speeds(snapshot: Snapshot, is_first: bool = False) -> str:
    """Return message rates and free resources on one line. `is_first`: see `cell`."""
    stats = snapshot.overview.get("message_stats", {})
    words = {"publish": "in", "confirm": "confirmed", "deliver_get": "out", "ack": "acked"}
    rates = {word: at(stats, f"{name}_details.rate") or 0 for name, word in words.items()}
    parts = [f"{word} {'-' if is_first and not rate else f'{rate:,.0f}'}/s" for word, rate in rates.items()]
    for node in snapshot.nodes[:1]:
        parts.append(f"memory {octets(node.get('mem_used') or 0)}")
        parts.append(f"disk {octets(node.get('disk_free') or 0)} free")
    return " · ".join(parts)


def table(view: View, items: list[Item], width: int, is_first: bool = False) -> list[str]:
    """Return a table as lines; the widest text column takes the remaining width. `is_first`: see `cell`."""
    columns = fitting(view, width)
    cells = [[cell(column, item, is_first) for column in columns] for item in items]
    widths = [
        max([column.width, len(column.title), *(len(row[index]) for row in cells if column.is_number)])
        for index, column in enumerate(columns)
    ]
    spare = width - sum(widths) - 2 * (len(widths) - 1)
    for index, column in enumerate(columns):
        wanted = max((len(row[index]) for row in cells), default=0) - widths[index]
        if not column.is_number and spare > 0 and wanted > 0:
            widths[index] += min(spare, wanted)
            spare -= min(spare, wanted)
    lines = []
    for row in [[column.title for column in columns], *cells]:
        parts = [
            text.rjust(size) if column.is_number else shortened(text, size).ljust(size)
            for text, size, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def shortened(text: str, size: int) -> str:
    """Shorten a name in the middle, as names often differ at their ends."""
    if len(text) <= size:
        return text
    half = (size - 1) // 2
    return text[: size - 1 - half] + "…" + text[len(text) - half :]


def once(source: SampleSource, question: SampleRequest, width: int) -> str:
    """Return one sample as text."""
    snapshot = source.ask(question)
    items = arranged(question.view, snapshot.items, question.sort, question.is_reversed, question.text)
    lines = [headline(snapshot), speeds(snapshot, True)]
    lines += [f"ALARM: low on {alarm}; publishers are blocked" for alarm in snapshot.alarms]
    return "\n".join([*lines, "", *table(question.view, items, width, True)])


def everything(source: SampleSource, text: str) -> dict[str, Any]:
    """Return all views with the broker's own field names."""
    found: dict[str, Any] = {}
    for view in VIEWS.values():
        snapshot = source.ask(SampleRequest(view, view.sort, False, text))
        found |= {"overview": snapshot.overview, "nodes": snapshot.nodes, "alarms": snapshot.alarms}
        found[view.name] = arranged(view, snapshot.items, view.sort, False, text)
    return found
