"""Conversion of a Spec to a click command with completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from leveret.cli.ctl.complete import names_of
from leveret.cli.ctl.run import CallOptions, carry_out
from leveret.cli.ctl.spec import Option, PositionalArgument, Spec

FORMATTERS: Final = ("table", "pretty_table", "json", "csv")
VALUED: Final = frozenset(
    {"-p", "--vhost", "-n", "--node", "-t", "--timeout", "--formatter", "--data-dir", "--script-name"}
)
"""General options that take a value."""
TYPES: Final[dict[str, Any]] = {"int": click.INT}


def _general() -> list[click.Parameter]:
    """Return the options of all commands. --node is ignored: the data directory determines the broker."""
    return [
        click.Option(
            ["-p", "--vhost"], default="/", metavar="VHOST", help="Virtual host.", shell_complete=_completer("vhosts")
        ),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print only the result."),
        click.Option(["-s", "--silent"], is_flag=True, help="Print only the result, without table headers."),
        click.Option(["--formatter"], type=click.Choice(FORMATTERS), help="Output format."),
        click.Option(["--json"], is_flag=True, help="Same as --formatter json."),
        click.Option(["--no-table-headers"], is_flag=True, help="Omit table headers."),
        click.Option(["--table-headers"], is_flag=True, hidden=True),
        click.Option(["-t", "--timeout"], type=click.FLOAT, metavar="SECONDS", help="Give up if the broker has not "
                                                                                    "answered after this time."),
        click.Option(["--data-dir"], metavar="DIR", help="The broker's data directory."),
        click.Option(["-n", "--node"], metavar="NODE", help="Accepted and ignored."),
        click.Option(["-l", "--longnames"], is_flag=True, hidden=True),
        click.Option(["--script-name"], hidden=True),
    ]


def click_command(spec: Spec, program: str) -> click.Command:
    """Return the click command of a spec."""
    params: list[click.Parameter] = [_argument(argument, spec) for argument in spec.arguments]
    params += [_option(option) for option in spec.options]
    taken = {param.name for param in params}
    params += [param for param in _general() if param.name not in taken]

    def run(**values: Any) -> None:
        settings = CallOptions.of(values)
        given = {"vhost": values["vhost"]} if "vhost" not in {argument.name for argument in spec.arguments} else {}
        for parameter in spec.parameters:
            given[parameter.name] = values[_identifier(parameter.name)]
        carry_out(spec, given, settings)

    text = f"{spec.help}\n\n{spec.absent}" if spec.absent and spec.absent != spec.help else spec.help
    return click.Command(spec.name, params=params, callback=run, help=text)


def usage(spec: Spec, program: str) -> str:
    """Return the usage on one line: program, command, options, arguments."""
    options = [f"[--{option.name}{f' <{option.metavar}>' if option.kind != 'flag' else ''}]" for option in spec.options]
    arguments = [f"[<{each.name}>]" if each.is_optional else f"<{each.name}>" for each in spec.arguments]
    vhost = ["[--vhost <vhost>]"] if spec.takes_vhost else []
    return " ".join([program, "[--data-dir <dir>] [--quiet]", spec.name, *vhost, *options, *arguments])


def _argument(argument: PositionalArgument, spec: Spec) -> click.Argument:
    completes = argument.completes
    names = tuple(column.name for column in getattr(spec.show, "columns", ())) if argument.kind == "columns" else ()
    return click.Argument(
        [_identifier(argument.name)],
        required=not argument.is_optional,
        nargs=-1 if argument.kind in ("rest", "columns") else 1,
        type=TYPES.get(argument.kind, click.STRING),
        metavar=argument.name.upper(),
        shell_complete=_completer(completes, names) if completes or names else None,
    )


def _option(option: Option) -> click.Option:
    if option.kind == "flag":
        return click.Option([f"--{option.name}", _identifier(option.name)], is_flag=True)
    kind = TYPES.get(option.kind, click.STRING)
    names = [f"--{option.name}", _identifier(option.name)]
    return click.Option(names, type=kind, default=option.default, metavar=option.metavar or None)


def _identifier(name: str) -> str:
    return name.replace("-", "_")


def _completer(
    noun: str, names: tuple[str, ...] = ()
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        found = names or names_of(noun, ctx.params)
        return [CompletionItem(name) for name in found if name.startswith(begun)]

    return complete
