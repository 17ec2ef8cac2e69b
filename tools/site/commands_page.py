"""The reference of all commands: leveret's from click, those of `leveret ctl` from their own table."""

from __future__ import annotations

from collections.abc import Iterator

import click

from leveret.cli.ctl.spec import PositionalArgument, Spec
from leveret.cli.ctl.tables import CTL, DIAGNOSTICS
from leveret.cli.main import main

INTRO = """# Commands

Everything that `leveret` can do at a shell, as its own tables have it. `leveret COMMAND --help` prints the same.
"""


def text() -> str:
    lines = [INTRO]
    with click.Context(main, info_name="leveret") as context:
        for name in main.list_commands(context):
            command = main.get_command(context, name)
            assert command is not None
            lines += _ctl() if name == "ctl" else _of(command, context, name, 2)
    return "\n".join(lines)


def _of(command: click.Command, parent: click.Context, name: str, depth: int) -> Iterator[str]:
    context = click.Context(command, parent, name)
    yield f"{'#' * depth} {context.command_path}\n"
    yield (_help(command) + "\n")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"    {context.command_path} {usage}\n"
    yield from _options(command, context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            assert child is not None
            yield from _of(child, context, each, min(depth + 1, 4))


def _help(command: click.Command) -> str:
    lines = (command.help or "").replace("\b\n", "").splitlines()
    return "\n".join(line.strip() for line in lines)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    found = [record for record in records if record and record[0] != "--help"]
    if found:
        yield "| option | |\n|---|---|"
        for option, meaning in found:
            yield f"| `{option.replace('|', '&#124;')}` | {cell(meaning)} |"
        yield ""


def _ctl() -> Iterator[str]:
    yield "## leveret ctl\n"
    yield "The commands of rabbitmqctl, and some that only leveret has (marked with *). [How it is used](ctl.md).\n"
    yield from _specs(CTL)
    yield "## rabbitmq-diagnostics\n"
    yield "What a link of that name to `leveret` can do.\n"
    yield from _specs({name: spec for name, spec in DIAGNOSTICS.items() if name not in CTL})


def _specs(specs: dict[str, Spec]) -> Iterator[str]:
    group = ""
    for spec in specs.values():
        if spec.group != group:
            group = spec.group
            yield f"\n**{group or 'Not here'}**\n\n| command | |\n|---|---|"
        usage = " ".join([spec.name, *(_shown(each) for each in spec.arguments)])
        more = " ".join(f"[--{each.name} {each.metavar}]".replace(" ]", "]") for each in spec.options)
        command = f"{usage} {more}".strip().replace("|", "&#124;")
        yield f"| `{command}`{'*' * spec.is_ours} | {cell(spec.help or spec.absent)} |"
    yield ""


def _shown(argument: PositionalArgument) -> str:
    name = f"<{argument.name}>"
    return f"[{name}]" if argument.is_optional else name


def cell(text: str) -> str:
    """Escape text for a cell of a table."""
    return " ".join(text.split()).replace("|", "&#124;").replace("<", "&lt;").replace("[", "&#91;")
