"""Execution of one command, from its arguments to its output."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from leveret.cli.ctl.exits import DATA, NO_PERMISSION, OF_KIND, TIMED_OUT, UNAVAILABLE, USAGE, Failed
from leveret.cli.ctl.exits import NO_USER as EXIT_NO_USER
from leveret.cli.ctl.output import needed_columns, print_rows
from leveret.cli.ctl.spec import AnswerTable, DynamicTable, Option, PositionalArgument, Spec
from leveret.cli.ctl.terms import json_text
from leveret.cli.ctl.waiting import AWAIT_S
from leveret.cli.data_dir import default_data_dir
from leveret.cli.plain_words import plain_words
from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import NOT_FOUND, Refused

TIMEOUT_S: Final = 60.0
"""The timeout that rabbitmqctl prints by default; this program waits without limit."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The general options of a command.

    Attributes:
        timeout_s: None for no limit.
        formatter: "table", "pretty_table", "json" or "csv".
    """

    data_dir: str
    timeout_s: float | None
    formatter: str
    is_quiet: bool
    has_headers: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read them from click's parameters. A terminal gets a drawn table, a pipe a tab-separated one."""
        formatter = "json" if values["json"] else values["formatter"]
        timeout_s = values["timeout"]
        return cls(
            values["data_dir"] or default_data_dir(),
            timeout_s if timeout_s and timeout_s > 0 else None,
            formatter or ("pretty_table" if sys.stdout.isatty() else "table"),
            values["quiet"] or values["silent"],
            not values["silent"] and not values["no_table_headers"],
        )

    @property
    def is_for_machines(self) -> bool:
        """Whether the output is one document, with no other text around it."""
        return self.formatter in ("json", "csv")


def carry_out(spec: Spec, given: dict[str, Any], settings: CallOptions) -> None:
    """Run the command and print its result. Raises Failed."""
    if spec.absent:
        raise Failed(f"Error:\n{spec.absent}", UNAVAILABLE)
    _check_columns(spec, given)
    given |= {
        "node": f"leveret@{socket.gethostname()}",
        "timeout_s": settings.timeout_s or TIMEOUT_S,
        "timeout_ms": int((settings.timeout_s or TIMEOUT_S) * 1000),
    }
    more = spec.fields(given) if spec.fields else {}
    if spec.banner and not settings.is_quiet and not settings.is_for_machines and given.get("file") != "-":
        print(spec.banner.format_map(_words(spec, given)), flush=True)
    for argument in spec.arguments:
        if argument.kind == "password" and given.get("pre-hashed-password") is None:
            given[argument.name] = _password(argument, given[argument.name], settings)
    answer = _call(spec, _fields(spec, given) | more, settings) if spec.command else None
    _show(spec, answer, given, settings)


def _words(spec: Spec, given: Mapping[str, Any]) -> dict[str, object]:
    words: dict[str, object] = {
        name: ", ".join(value) if isinstance(value, tuple) else value for name, value in given.items()
    }
    return words | (spec.words(given) if spec.words else {})


def _check_columns(spec: Spec, given: Mapping[str, Any]) -> None:
    known = {column.name for column in spec.show.columns} if isinstance(spec.show, AnswerTable) else set()
    unknown = [name for name in given.get("column", ()) if name not in known]
    if unknown and known:
        raise Failed(f"Error (argument validation): Info key(s) {','.join(unknown)} are not supported", USAGE)


def _fields(spec: Spec, given: Mapping[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {"vhost": given["vhost"]} if spec.takes_vhost else {}
    if isinstance(spec.show, AnswerTable) and spec.show.takes_columns:
        fields |= needed_columns(spec.show, given.get("column", ()))
    for parameter in spec.parameters:
        if parameter.field and parameter.kind != "columns":
            value = _value(parameter, given[parameter.name])
            if value is not None:
                fields[parameter.field] = value
    return fields


def _value(parameter: PositionalArgument | Option, value: Any) -> object:
    """Return the field's value for an argument; None if it is not sent."""
    if parameter.kind == "names":
        return None if value is None else tuple(filter(None, value.split(",")))
    if parameter.kind == "rest":
        return [name for word in value for name in word.split(",") if name]
    if parameter.kind == "json":
        try:
            return json.loads(value)
        except ValueError as error:
            raise Failed(f"Error:\nJSON decoding error. Reason: {error}", UNAVAILABLE) from None
    given: object = value
    return given


def _password(argument: PositionalArgument, given: str | None, settings: CallOptions) -> str:
    """Return the password, read from the terminal or standard input if it was not given."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        import getpass

        password = getpass.getpass()
    else:
        if not settings.is_quiet:
            print("Password: ")
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Failed("Error:\nPassword is not provided via argument or stdin", argument.missing_exit)
    return password


def _call(spec: Spec, fields: dict[str, object], settings: CallOptions) -> Any:
    try:
        if spec.via is not None:
            return spec.via(spec.command, fields, settings.data_dir, settings.timeout_s)
        with ControlClient(settings.data_dir, timeout_s=settings.timeout_s) as control:
            return control.call(spec.command, **fields)
    except Refused as refused:
        raise Failed(f"Error:\n{plain_words(refused.reason)}", _exit_code(spec, refused)) from None
    except TimeoutError:
        text = f"Error: operation {spec.name} timed out. Timeout value used: {settings.timeout_s or AWAIT_S:g} s"
        raise Failed(text, TIMED_OUT) from None
    except PermissionError as error:
        text = f"Error: no permission to open the control socket in {settings.data_dir}: {error.strerror}"
        raise Failed(f"{text}\nRun this command as the user that runs the broker.", NO_PERMISSION) from None
    except OSError as error:
        raise Failed(_nobody(settings.data_dir, error), UNAVAILABLE) from None


def _exit_code(spec: Spec, refused: Refused) -> int:
    if refused.kind in spec.exits:
        return spec.exits[refused.kind]
    if refused.kind == NOT_FOUND and refused.reason.startswith("User "):
        return EXIT_NO_USER
    return OF_KIND.get(refused.kind, DATA)


def _nobody(data_dir: str, error: OSError) -> str:
    path = os.path.abspath(data_dir)
    return (
        f"Error: no broker is running in {path}: {error.strerror or error}\n"
        f"Start one with 'leveret serve --data-dir {path}',\n"
        "or give the data directory of the running broker with --data-dir (or LEVERET_DATA_DIR)."
    )


def _show(spec: Spec, answer: Any, given: Mapping[str, Any], settings: CallOptions) -> None:
    shown = (
        DynamicTable(spec.show, answer)
        if isinstance(spec.show, AnswerTable)
        else spec.show(answer, given)
        if spec.show
        else ""
    )
    if isinstance(shown, DynamicTable):
        print_rows(shown, given.get("column", ()), settings.formatter, settings.has_headers)
        return
    if settings.formatter == "json" and not given.get("file"):
        value = answer if spec.show and answer is not None else {"status": "ok", "node": given["node"]}
        print(json_text(value | {"message": spec.aside} if spec.aside else value))
        return
    if shown:
        print(shown.removesuffix("\n"))
    if spec.aside and not settings.is_quiet:
        print(spec.aside)
