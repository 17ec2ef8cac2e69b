"""Output of tables: tab-separated as rabbitmqctl prints them, JSON, CSV, or drawn for people."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from typing import Any

from leveret.cli.ctl.spec import AnswerTable, DynamicTable, Row, TableColumn
from leveret.cli.ctl.terms import cell, json_text


def needed_columns(table: AnswerTable, chosen: Sequence[str]) -> dict[str, object]:
    """Return the command's field that limits the answer to the needed columns; empty if columns are computed."""
    paths = [column.value for column in table.columns if column.name in (chosen or table.shown)]
    return {"columns": paths} if all(isinstance(path, str) for path in paths) else {}


def print_rows(shown: DynamicTable, chosen: Sequence[str], formatter: str, has_header: bool) -> None:
    """Print a table. `chosen` are the requested columns, in this order."""
    known = {column.name: column for column in shown.table.columns}
    for_people = shown.table.for_people if formatter == "pretty_table" else ()
    asked = chosen or for_people or shown.table.shown
    columns = [known[name] for name in (known if shown.table.has_own_order else asked) if name in asked]
    rows = [[_value(column, row) for column in columns] for row in shown.rows]
    names = [column.name for column in columns]
    {"json": _json, "csv": _csv, "pretty_table": _pretty, "table": _tabs}[formatter](
        shown.table, names, rows, has_header
    )


def _value(column: TableColumn, row: Row) -> object:
    if not isinstance(column.value, str):
        return column.value(row)
    value: Any = row
    for name in column.value.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


Print = Callable[[AnswerTable, list[str], list[list[object]], bool], None]


def _tabs(table: AnswerTable, names: list[str], rows: list[list[object]], has_header: bool) -> None:
    if not rows:
        if not table.is_streamed:
            print()
        return
    if has_header and table.has_header:
        print("\t".join(names))
    for row in rows:
        print("\t".join(map(cell, row)))


def _json(table: AnswerTable, names: list[str], rows: list[list[object]], has_header: bool) -> None:
    """Print an array with one object on each line."""
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    print("[")
    if objects:
        print("\n,".join(json_text(each, (",", ":")) for each in objects))
    print("]")


def _csv(table: AnswerTable, names: list[str], rows: list[list[object]], has_header: bool) -> None:
    writer = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
    if has_header and (rows or not table.is_streamed):
        writer.writerow(names)
    writer.writerows([cell(value) for value in row] for row in rows)


def _pretty(table: AnswerTable, names: list[str], rows: list[list[object]], has_header: bool) -> None:
    from rich.box import ROUNDED
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=ROUNDED, show_header=has_header)
    for index, name in enumerate(names):
        is_number = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        drawn.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell(value)) for value in row))
    Console().print(drawn)
