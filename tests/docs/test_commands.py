"""Each command on each page exists and has the options that the page shows."""

import re

import click
import pytest
from click.testing import CliRunner

from leveret.cli.ctl.group import CtlGroup
from leveret.cli.ctl.tables import CTL, DIAGNOSTICS
from leveret.cli.main import COMMANDS, main
from leveret.cli.options import CommandGroup
from tests.docs.commands import ROOT, Shown, shown, told

ALL = sorted(set(shown()), key=str)
OF_ALL_CTL = {
    "p",
    "vhost",
    "n",
    "node",
    "q",
    "quiet",
    "s",
    "silent",
    "data-dir",
    "t",
    "timeout",
    "formatter",
    "dry-run",
}
PLACEHOLDERS = re.compile(r"^[A-Z][A-Z_]*$|^[\[…(<].*|.*…$")


def wrong(command: Shown) -> str:
    """Return what is wrong with a command; "" if nothing is."""
    words = [word for word in command.words if word not in ("…", "...", "\\")]
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        missing = [word for word in words[1:] if "=" not in word and not word.startswith("-") and word not in targets]
        return f"no target {missing}" if missing else ""
    if words[1:2] == ["ctl"]:
        return _ctl(words[2:])
    found: click.Command = main
    context = click.Context(main, info_name="leveret")
    rest = words[1:]
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        if PLACEHOLDERS.match(rest[0]):
            return ""
        child = found.get_command(context, rest[0])
        if child is None:
            return f"no command {rest[0]}"
        context = click.Context(child, context, rest[0])
        found, rest = child, rest[1:]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help",
        "--version",
    }
    unknown = [word for word in rest if re.match(r"--[a-z]", word) and word.split("=")[0] not in known]
    passes_on = found.context_settings.get("ignore_unknown_options")  # spark-submit checks the rest
    return f"no option {unknown}" if unknown and not passes_on else ""


def _ctl(words: list[str]) -> str:
    names = [word for word in words if word in CTL or word in DIAGNOSTICS]
    plain = [word for word in words if not word.startswith("-")]
    if not plain or PLACEHOLDERS.match(plain[0]) or words[0] in ("--help", "-?"):
        return ""
    if not names:
        return f"no command in {words}"
    spec = CTL.get(names[0]) or DIAGNOSTICS[names[0]]
    known = (
        {option.name for option in spec.options}
        | {option.name.replace("_", "-") for option in spec.options}
        | OF_ALL_CTL
    )
    unknown = [word for word in words if re.match(r"--[a-z]", word) and word[2:].split("=")[0] not in known]
    return f"no option {unknown}" if unknown else ""


def test_pages_show_commands_that_there_are() -> None:
    found = {f"{command.page}: {command}": wrong(command) for command in ALL}
    assert found
    assert {text: reason for text, reason in found.items() if reason} == {}


def test_sentences_name_commands_that_there_are() -> None:
    """Commands in the page's scripts, in errors, remedies and help, and in sentences of the documentation."""
    found = {f"{command.page}: {command}": wrong(command) for command in set(told())}
    assert {"leveret delay create", "leveret stream head"} <= {" ".join(command.words) for command in told()}
    assert {text: reason for text, reason in found.items() if reason} == {}


@pytest.mark.parametrize(
    "words",
    [("make", "nothing"), ("leveret", "surf"), ("leveret", "serve", "--prot", "1"), ("leveret", "ctl", "list_qeues"),
     ("leveret", "ctl", "list_queues", "--al")],
)  # fmt: skip
def test_one_that_is_not_there_is_found(words: tuple[str, ...]) -> None:
    assert wrong(Shown("page", words))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("serv", "serve"), ("demoo", "demo"), ("delay creat", "create"), ("stream taill", "tail"), ("store chek", "check"),
     ("spark archiv", "archive"), ("errors lst", "list"), ("lake registr", "register"), ("timeouts stats", "status"),
     ("ctl list_quees", "list_queues")],
)  # fmt: skip
def test_a_mistyped_command_names_the_one_that_was_meant(typed: str, meant: str) -> None:
    result = CliRunner().invoke(main, typed.split())
    assert result.exit_code not in (0, 1)
    assert f"Did you mean '{meant}'?" in result.output


def test_every_group_knows_what_was_meant() -> None:
    context = click.Context(main, info_name="leveret")
    groups = [found for name in COMMANDS if isinstance(found := main.get_command(context, name), click.Group)]
    assert len(groups) == 10
    assert all(isinstance(group, CommandGroup | CtlGroup) for group in [main, *groups])


def test_a_command_that_is_like_no_other() -> None:
    result = CliRunner().invoke(main, ["qqqq"], prog_name="leveret")
    assert result.exit_code == 2
    assert "'leveret --help' lists all commands" in result.output
