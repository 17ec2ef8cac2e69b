"""What a command of the command line is: data only.

A command's arguments and options become fields of a command of the control socket; its answer becomes a table or text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from leveret.cli.ctl.exits import DATA

Row = Mapping[str, Any]
Kind = Literal["text", "json", "int", "password", "names", "columns", "rest", "flag"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument. field: of the command on the socket, "" = it is not sent; completes: what names stand for
    it: "queues", "users", "vhosts", …; missing_exit: the exit code where a password was asked for and none came."""

    name: str
    field: str
    kind: Kind = "text"
    is_optional: bool = False
    completes: str = ""
    missing_exit: int = DATA


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one command. kind "flag" takes no value; field "" is accepted and means nothing here."""

    name: str
    field: str
    kind: Kind = "text"
    metavar: str = ""
    default: object = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. value: where in an item of the answer it is, as a dotted path, or what makes it of one."""

    name: str
    value: str | Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class Table:
    """columns: all that there are; shown: those that are shown unless others are asked for; for_people: those that a
    terminal shows instead, where they are too many.

    is_streamed: rabbitmqctl prints nothing at all where there are no rows, else an empty line; has_header: it has one;
    has_own_order: columns are shown in the order of the table, whatever order they are asked for in; takes_columns: the
    command on the socket leaves out what it is not asked for.
    """

    columns: tuple[Column, ...]
    shown: tuple[str, ...]
    for_people: tuple[str, ...] = ()
    is_streamed: bool = False
    has_header: bool = True
    has_own_order: bool = False
    takes_columns: bool = False


Given = Mapping[str, Any]
"""What the caller wrote, by the names of arguments and options, with `vhost`, `node` and `timeout_s`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A table with what is in it, where only the answer tells that it is one."""

    table: Table
    rows: list[Row]


# the command, its fields, the data directory and how many seconds it may take; returns the answer
Via = Callable[[str, dict[str, object], str, float | None], Any]
# the answer and what was given; "" prints nothing
Text = Callable[[Any, Given], str | Rows]


@dataclass(frozen=True, slots=True)
class Spec:
    """One command.

    call: its name on the socket where it differs; "" = nothing is called; takes_vhost: -p is its field `vhost`;
    fields: what is sent besides arguments and options; words: what the banner has besides them; banner: what is printed
    first; show: the answer as a table or as text; aside: printed behind it, but not if quiet; exits: exit codes for
    kinds of refusal, where they are not the usual ones; via: calls the broker in a way of its own; absent: why there is
    no such command here, and what to do instead; is_ours: rabbitmqctl 3.10 has none of this name.
    """

    name: str
    group: str
    help: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    takes_vhost: bool = False
    banner: str = ""
    call: str | None = None
    fields: Callable[[Given], dict[str, object]] | None = None
    words: Callable[[Given], dict[str, str]] | None = None
    show: Table | Text | None = None
    exits: Mapping[str, int] = field(default_factory=dict)
    via: Via | None = None
    absent: str = ""
    aside: str = ""
    is_ours: bool = False

    @property
    def parameters(self) -> tuple[Argument | Option, ...]:
        """What the caller may write."""
        return (*self.arguments, *self.options)

    @property
    def command(self) -> str:
        """The command of the control socket."""
        return self.name if self.call is None else self.call


SUFFIXES: Final[dict[str, Kind]] = {"{}": "json", "#": "int", "*": "rest"}


def arguments(text: str) -> tuple[Argument, ...]:
    """Arguments in short: NAME, NAME:FIELD, NAME:FIELD:COMPLETES, or NAME: where nothing is sent.

    Behind it {} for JSON, # for a whole number, * for all that is left, ? if it may be missing.
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
            Argument(
                parts[0],
                parts[0] if is_plain else parts[1],
                kind,
                word.endswith("?") or kind == "rest",
                parts[2] if len(parts) > 2 else "",
            )
        )
    return tuple(found)


def columns(*names: str, **paths: str | Callable[[Row], object]) -> tuple[Column, ...]:
    """Columns of these names, with values of these names unless paths say otherwise."""
    plain = tuple(Column(name, name) for name in names)
    return plain + tuple(Column(name, value) for name, value in paths.items())
