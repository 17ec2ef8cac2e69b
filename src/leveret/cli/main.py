"""The command `leveret`. Subcommands are imported when they are called, so that `leveret serve` starts fast."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from leveret import _CORE, __version__
from leveret._core import PACKAGE
from leveret.cli.options import CommandGroup

DEMO: Final = "leveret.demo"
# command -> (module, attribute, one line of help)
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "serve": ("leveret.cli.serve", "command", "Run the broker."),
    "ctl": ("leveret.cli.ctl.group", "command", "Administer a running broker, as rabbitmqctl does."),
    "publish": ("leveret.cli.messages.publish", "publish", "Publish messages, confirmed, to any broker."),
    "consume": ("leveret.cli.messages.receive", "consume", "Print messages of a queue, or what passes an exchange."),
    "get": ("leveret.cli.messages.receive", "get", "Take the first messages of a queue."),
    "request": ("leveret.cli.messages.publish", "request", "Send requests, and print their replies."),
    "declare": ("leveret.cli.messages.objects", "declare", "Declare an exchange or a queue."),
    "bind": ("leveret.cli.messages.objects", "bind", "Bind a queue or an exchange to an exchange."),
    "unbind": ("leveret.cli.messages.objects", "unbind", "Remove a binding."),
    "delete": ("leveret.cli.messages.objects", "delete", "Delete an exchange or a queue."),
    "purge": ("leveret.cli.messages.objects", "purge", "Remove the ready messages of a queue."),
    "store": ("leveret.cli.store", "command", "Inspect a data directory: check, dump."),
    "doctor": ("leveret.cli.doctor.command", "command", "Diagnose a running broker, leveret or RabbitMQ."),
    "bench": ("leveret.cli.bench.command", "command", "Benchmark an AMQP broker, or compare two."),
    "lake": ("leveret.cli.lake", "command", "Tables of streams: register them in an Iceberg catalogue."),
    "delay": ("leveret.cli.delay", "command", "Delay levels on any broker: create, verify, migrate, transfer."),
    "timeouts": ("leveret.cli.timeouts", "command", "Timeout manager for older endpoints: status, run, import, "
                                                    "drain, remove."),
    "stream": ("leveret.cli.stream.group", "command", "Read a stream on any broker: tail, head, count, export."),
    "trace": ("leveret.cli.trace.command", "command", "Trace messages through any broker, live, with its firehose."),
    "spark": ("leveret.cli.spark.group", "command", "Spark pipelines: archive, replay, schedule, audit, and more."),
    "errors": ("leveret.cli.errors", "command", "Failed messages of endpoints: list, retry, move."),
    "otel": ("leveret.cli.otel", "command", "Export a broker's firehose as OpenTelemetry traces."),
    "top": ("leveret.cli.top.command", "command", "Live view of a broker's queues, connections, links and streams."),
    "demo": (DEMO, "command", "Demo: 336,776 flights through broker, RPC, Spark and delays, reconciled."),
}


# symbolic links by which the executable may be called -> the group of commands that each one runs
LINKS: Final[dict[str, str]] = {
    "rabbitmqctl": "command", "rabbitmq-diagnostics": "diagnostics", "rabbitmq-upgrade": "upgrade",
}  # fmt: skip


class LazyGroup(CommandGroup):
    """A command group that imports commands on demand."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run the command, or that of LINKS if the executable was called by such a link."""
        if _CORE.is_refused:
            print(f"leveret: LEVERET_CORE={os.environ['LEVERET_CORE']}: {_CORE.reason}", file=sys.stderr)
            sys.exit(2)
        name = os.path.basename(sys.argv[0])
        if args is None and name in LINKS:
            group = getattr(importlib.import_module("leveret.cli.ctl.group"), LINKS[name])
            return group.main(None, name)
        return super().main(args, *more, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _, _) in COMMANDS.items() if _is_installed(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        if not _is_installed(module):
            raise click.UsageError("The demo is not part of the package: run `make run` in a checkout of leveret.", ctx)
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


def _is_installed(module: str) -> bool:
    """Return whether a command can be imported: wheels have no demo."""
    return module != DEMO or os.path.isdir(os.path.join(PACKAGE, "demo"))


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="leveret", message=f"%(prog)s %(version)s, {_CORE}")
def main() -> None:
    """A RabbitMQ-compatible message broker with a Spark pipeline."""


if __name__ == "__main__":
    main()
