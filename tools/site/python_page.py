"""The reference of the public Python API, from docstrings."""

from __future__ import annotations

import importlib

ROOMS = {
    "leveret.client": "A client for any AMQP 0-9-1 broker, asyncio and blocking.",
    "leveret.delay": "Delayed delivery on any broker.",
    "leveret.endpoint": "Named queues with handlers, retries and an error queue.",
    "leveret.frameworks.taskiq_broker": "Taskiq on the client.",
    "leveret.frameworks.faststream_broker": "FastStream on the client.",
    "leveret.lake": "A stream as a table for pyarrow, polars and DuckDB.",
    "leveret.spark": "Source, sink and RPC for PySpark.",
    "leveret.pipelines": "Pipelines on Spark as functions.",
}


def text() -> str:
    """Return the page, in Markdown; mkdocstrings fills it."""
    lines = ["# Python\n\nWhat programs import. Types are as annotated; docstrings say units and errors.\n"]
    for name, words in ROOMS.items():
        lines.append(f"## {name}\n\n{words}\n")
        module = importlib.import_module(name)
        for each in module.__all__:
            lines.append(f"::: {name}.{each}\n    options:\n      heading_level: 3\n")
    return "\n".join(lines)
