"""Each command on each page is one that there is, with options that it has."""

import re

import click
import pytest

from leveret.cli.ctl.tables import CTL, DIAGNOSTICS
from leveret.cli.main import main
from tests.docs.commands import ROOT, Shown, shown

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
    """What is wrong with it; "" if nothing is."""
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
    passes_on = found.context_settings.get("ignore_unknown_options")  # spark-submit knows the rest
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


@pytest.mark.parametrize("page", sorted({command.page for command in ALL}))
def test_a_page_shows_commands_that_there_are(page: str) -> None:
    found = {str(command): wrong(command) for command in ALL if command.page == page}
    assert not {text: reason for text, reason in found.items() if reason}


@pytest.mark.parametrize(
    "words",
    [("make", "nothing"), ("leveret", "surf"), ("leveret", "serve", "--prot", "1"), ("leveret", "ctl", "list_qeues"),
     ("leveret", "ctl", "list_queues", "--al")],
)  # fmt: skip
def test_one_that_is_not_there_is_found(words: tuple[str, ...]) -> None:
    assert wrong(Shown("page", words))
