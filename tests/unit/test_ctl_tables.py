"""The tables of `leveret ctl` fit the commands of the control socket, and docs/reference/ctl.md describes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.each import check_each

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.cli.ctl.spec import AnswerTable, PositionalArgument, Spec, arguments
from leveret.cli.ctl.tables import CTL, DIAGNOSTICS
from leveret.cli.ctl.terms import cell
from leveret.control.command import COMMANDS

ROOT = Path(__file__).parents[2]
CALLS = [spec for spec in {**DIAGNOSTICS, **CTL}.values() if spec.command]


def check_fields(spec: Spec) -> None:
    assert spec.command in COMMANDS
    fields = {field.name: field for field in msgspec.structs.fields(COMMANDS[spec.command])}
    sent = {each.field for each in spec.parameters if each.field and each.kind != "columns"}
    sent |= {"vhost"} if spec.takes_vhost else set()
    sent |= {"columns"} if isinstance(spec.show, AnswerTable) and spec.show.takes_columns else set()
    assert sent <= set(fields)
    if spec.fields is None:
        assert {name for name, field in fields.items() if field.required} <= sent


def test_what_is_sent_is_what_a_command_takes() -> None:
    check_each(CALLS, check_fields, lambda spec: spec.name)


def check_banner(spec: Spec) -> None:
    given = dict.fromkeys(["node", "timeout_s", "timeout_ms", "vhost"], "x")
    given |= {each.name: "x" for each in spec.parameters}
    words = spec.words(given) if spec.words else {}
    assert "{" not in spec.banner.format_map(given | dict(words))


def test_a_banner_knows_its_words() -> None:
    check_each(CTL.values(), check_banner, lambda spec: spec.name)


def test_the_list_of_commands_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "ctl_table.py", "--check"], check=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (5, "5"),
        ("a\tb", "a\tb"),
        ([], "[]"),
        (["a", "b"], "[a, b]"),
        ({}, "[]"),
        ({"x-max-length": 10, "x-overflow": 'a"b'}, '[{"x-max-length",10},{"x-overflow","a\\"b"}]'),
        ({"t": {"n": [1, "a", None, False]}}, '[{"t",[{"n",[1,"a",undefined,false]}]}]'),
    ],
)
def test_values_are_erlangs_terms(value: object, text: str) -> None:
    assert cell(value) == text


def test_arguments_in_short() -> None:
    assert arguments("a b:c d::queues e: f{} g#? h:i*") == (
        PositionalArgument("a", "a"),
        PositionalArgument("b", "c"),
        PositionalArgument("d", "d", completes="queues"),
        PositionalArgument("e", ""),
        PositionalArgument("f", "f", "json"),
        PositionalArgument("g", "g", "int", is_optional=True),
        PositionalArgument("h", "i", "rest", is_optional=True),
    )
