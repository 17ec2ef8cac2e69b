"""leveret serve | store | demo. Commands are imported when they are called: serving must start at once."""

from __future__ import annotations

import importlib
from typing import Final

import click

from leveret import __version__

# command -> (module, attribute, one line of help)
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "serve": ("leveret.cli.serve", "command", "Run the broker."),
    "store": ("leveret.cli.store", "command", "Look into a data directory: check, dump."),
    "demo": ("leveret.demo", "command", "336,776 flights through broker, RPC, Spark and delays, reconciled."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="leveret")
def main() -> None:
    """A RabbitMQ-compatible message broker with a Spark pipeline."""


if __name__ == "__main__":
    main()
