"""The command line of `leveret ctl`: options may stand anywhere, and exit codes are rabbitmqctl's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import click

from leveret.cli.ctl.exits import USAGE, Failed
from leveret.cli.ctl.parse import VALUED, click_command, usage
from leveret.cli.ctl.spec import Spec
from leveret.cli.ctl.tables import CTL, DIAGNOSTICS, UPGRADE

HELP_OPTIONS: Final = ("--help", "-?")


class CtlGroup(click.Group):
    """The commands of a table. The click command of each is built when it is called."""

    def __init__(self, specs: Mapping[str, Spec], name: str, help: str) -> None:
        super().__init__(name, help=help, context_settings={"help_option_names": list(HELP_OPTIONS)})
        self._specs = specs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._specs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        spec = self._specs.get(cmd_name)
        return None if spec is None else click_command(spec, ctx.command_path)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["ctl.args"] = " ".join(args)
        args = _in_order(args)
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(USAGE)
        if args[:1] == ["autocomplete"]:
            click.echo("\n".join(name for name in self._specs if name.startswith(args[1] if args[1:] else "")))
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._specs and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], self._specs, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"'{ctx.command_path} help' lists all commands."
            raise Failed(f"Command '{args[0]}' not found.\n{hint}", USAGE)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _misused(error, ctx)
        except Failed as failed:
            click.echo(failed.text, err=True)
            sys.exit(failed.code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for spec in self._specs.values():
            if not spec.absent:
                groups.setdefault(spec.group, []).append((spec.name, spec.help))
        for name, rows in groups.items():
            with formatter.section(name):
                formatter.write_dl(rows)


def _in_order(args: list[str]) -> list[str]:
    """Move options that precede the command behind it, and turn "help NAME" into NAME's --help."""
    ahead: list[str] = []
    left = list(args)
    while left and left[0].startswith("-") and left[0] not in HELP_OPTIONS:
        option = left.pop(0)
        ahead.append(option)
        if option in VALUED and left:
            ahead.append(left.pop(0))
    if left[:1] == ["help"]:
        return [*left[1:2], HELP_OPTIONS[0]]
    if left[:1] and left[0] in HELP_OPTIONS:
        return left[:1]
    return [*left[:1], *ahead, *left[1:]]


def _misused(error: click.UsageError, ctx: click.Context) -> NoReturn:
    if isinstance(error, click.MissingParameter):
        what = "not enough arguments."
    elif isinstance(error, click.NoSuchOption):
        what = f"Invalid options for this command:\n{error.option_name} : "
    elif error.message.startswith("Got unexpected extra argument"):
        what = "too many arguments."
    else:
        what = error.message
    name = error.ctx.info_name or "" if error.ctx else ""
    spec = CTL.get(name) or DIAGNOSTICS.get(name) or UPGRADE.get(name)
    text = f"Error (argument validation): {what}\nArguments given:\n\t{ctx.meta['ctl.args']}\n"
    click.echo(text + (f"\nUsage\n\n{usage(spec, ctx.command_path)}" if spec else ""), err=True)
    sys.exit(USAGE)


command = CtlGroup(
    CTL,
    "ctl",
    "Administer a running broker, as rabbitmqctl does.\n\nThe broker is found by its data directory: --data-dir, "
    "$LEVERET_DATA_DIR, or the default of `leveret serve`.",
)
upgrade = CtlGroup(UPGRADE, "upgrade", "Enter maintenance mode before an upgrade, as rabbitmq-upgrade does.")
diagnostics = CtlGroup(DIAGNOSTICS, "diagnostics", "Check a running broker's health, as rabbitmq-diagnostics does.")
