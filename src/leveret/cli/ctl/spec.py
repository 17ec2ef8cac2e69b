"""The declaration of a command of the command line, as data.

The command's arguments and options become fields of a command on the control socket; its answer becomes a table or
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from leveret.cli.ctl.exits import DATA

Row = Mapping[str, Any]
Kind = Literal["text", "json", "int", "password", "names", "columns", "rest", "flag"]


@dataclass(frozen=True, slots=True)
class PositionalArgument:
    """A positional argument.

    Attributes:
        field: the field of the socket's command; "" if it is not sent.
        completes: the noun for shell completion: "queues", "users", "vhosts", …
        missing_exit: the exit code if a password was requested and not given.
    """

    name: str
    field: str
    kind: Kind = "text"
    is_optional: bool = False
    completes: str = ""
    missing_exit: int = DATA


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one command. Kind "flag" takes no value; an option with field "" is not sent."""

    name: str
    field: str
    kind: Kind = "text"
    metavar: str = ""
    default: object = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; `value` is a dotted path in a row of the answer, or a function of the row."""

    name: str
    value: str | Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """A table of the answer.

    Attributes:
        columns: all existing columns.
        shown: the default columns.
        for_people: the default columns on a terminal, if `shown` are too many.
        is_streamed: without rows nothing is printed, as by rabbitmqctl; otherwise an empty line.
        has_own_order: columns keep the table's order, whatever order is requested.
        takes_columns: the socket's command can omit columns that are not requested.
    """

    columns: tuple[TableColumn, ...]
    shown: tuple[str, ...]
    for_people: tuple[str, ...] = ()
    is_streamed: bool = False
    has_header: bool = True
    has_own_order: bool = False
    takes_columns: bool = False


Given = Mapping[str, Any]
"""Argument and option values by name, with `vhost`, `node` and `timeout_s`."""


@dataclass(frozen=True, slots=True)
class DynamicTable:
    """A table with its rows, for commands whose table depends on the answer."""

    table: AnswerTable
    rows: list[Row]


# called with command, fields, data directory and timeout in seconds; returns the answer
Via = Callable[[str, dict[str, object], str, float | None], Any]
# called with the answer and the given values; "" prints nothing
Text = Callable[[Any, Given], str | DynamicTable]


@dataclass(frozen=True, slots=True)
class Spec:
    """A command of the command line.

    Attributes:
        takes_vhost: --vhost is sent as field `vhost`.
        banner: printed first.
        call: its name on the socket if different; "" for commands that call nothing.
        fields: computes further fields.
        words: computes further words of the banner.
        show: the answer as a table or text.
        exits: exit codes by kind of refusal, where different from the usual ones.
        via: calls the broker in a special way.
        absent: why this broker does not have the command, and what to use instead.
        aside: printed after the answer, unless quiet.
        is_ours: rabbitmqctl 3.10 has no command of this name.
    """

    name: str
    group: str
    help: str
    arguments: tuple[PositionalArgument, ...] = ()
    options: tuple[Option, ...] = ()
    takes_vhost: bool = False
    banner: str = ""
    call: str | None = None
    fields: Callable[[Given], dict[str, object]] | None = None
    words: Callable[[Given], dict[str, str]] | None = None
    show: AnswerTable | Text | None = None
    exits: Mapping[str, int] = field(default_factory=dict)
    via: Via | None = None
    absent: str = ""
    aside: str = ""
    is_ours: bool = False

    @property
    def parameters(self) -> tuple[PositionalArgument | Option, ...]:
        """All arguments and options."""
        return (*self.arguments, *self.options)

    @property
    def command(self) -> str:
        """The command's name on the control socket."""
        return self.name if self.call is None else self.call


SUFFIXES: Final[dict[str, Kind]] = {"{}": "json", "#": "int", "*": "rest"}


def arguments(text: str) -> tuple[PositionalArgument, ...]:
    """Parse arguments in short notation: NAME, NAME:FIELD, NAME:FIELD:COMPLETES, or NAME: which is not sent.

    Suffixes: {} for JSON, # for an integer, * for all remaining words, ? for optional.
    """
    found = []
    for word in text.split():
        rest = word.removesuffix("?")
        kind: Kind = "text"
        for suffix, name in SUFFIXES.items():
            if rest.endswith(suffix):
                rest, kind = rest.removesuffix(suffix), name
        parts = rest.split(":")
        is_plain = len(parts) == 1 or (len(parts) == 3 and not parts[1])
        found.append(
            PositionalArgument(
                parts[0],
                parts[0] if is_plain else parts[1],
                kind,
                word.endswith("?") or kind == "rest",
                parts[2] if len(parts) > 2 else "",
            )
        )
    return tuple(found)


def columns(*names: str, **paths: str | Callable[[Row], object]) -> tuple[TableColumn, ...]:
    """Return columns of these names with values of the same names, and columns by keyword with other values."""
    plain = tuple(TableColumn(name, name) for name in names)
    return plain + tuple(TableColumn(name, value) for name, value in paths.items())
