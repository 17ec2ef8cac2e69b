"""leveret declare, bind, unbind, delete and purge: exchanges, queues and bindings over AMQP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from leveret.cli.messages.running import ARGUMENTS, AS_JSON, EXIT_CODES, WHERE, run, told
from leveret.cli.options import CommandGroup
from leveret.cli.terminal import counted
from leveret.client import BlockingConnection
from leveret.client.blocking_channel import BlockingChannel
from leveret.wire.table import Value

Pairs = tuple[tuple[str, Value], ...]
Rebind = Callable[[BlockingChannel, str, str, str, dict[str, Value]], None]
TRANSIENT: Final = click.option("--transient", is_flag=True, help="It is gone after a restart of the broker.")
AUTO_DELETE: Final = click.option("--auto-delete", is_flag=True, help="It ends when nothing uses it any more.")
PASSIVE: Final = click.option("--passive", is_flag=True, help="Only check that it exists.")
IF_UNUSED: Final = click.option("--if-unused", is_flag=True, help="Only if nothing uses it.")


def _do(url: str, command: str, work: Callable[[BlockingChannel], object]) -> None:
    def on_channel(_: BlockingConnection, channel: BlockingChannel) -> None:
        work(channel)

    run(url, command, on_channel)


@click.group(cls=CommandGroup, epilog=f"Exit codes: {EXIT_CODES}.")
def declare() -> None:
    """Declare an exchange or a queue. Succeeds if an identical one already exists."""


@declare.command("exchange")
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, metavar="TYPE",
              help="direct, fanout, topic, headers, or another type that the broker has.")  # fmt: skip
@TRANSIENT
@AUTO_DELETE
@click.option("--internal", is_flag=True, help="Clients cannot publish to it.")
@PASSIVE
@ARGUMENTS
@AS_JSON
@WHERE
def declare_exchange(
    name: str, kind: str, transient: bool, auto_delete: bool, internal: bool, passive: bool, arguments: Pairs,
    as_json: bool, url: str,
) -> None:  # fmt: skip
    """Declare the exchange NAME."""
    _do(url, "declare", lambda channel: channel.declare_exchange(
        name, kind, durable=not transient, auto_delete=auto_delete, internal=internal, passive=passive,
        arguments=dict(arguments),
    ))  # fmt: skip
    told(f"exchange '{name}'", as_json, {"exchange": name})


@declare.command("queue")
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(["classic", "quorum", "stream"]), help="The argument x-queue-type.")
@TRANSIENT
@AUTO_DELETE
@PASSIVE
@ARGUMENTS
@AS_JSON
@WHERE
def declare_queue(
    name: str, kind: str | None, transient: bool, auto_delete: bool, passive: bool, arguments: Pairs, as_json: bool,
    url: str,
) -> None:  # fmt: skip
    """Declare the queue NAME; an empty name has the broker choose one."""
    given = dict(arguments) | ({} if kind is None else {"x-queue-type": kind})

    def work(_: BlockingConnection, channel: BlockingChannel) -> tuple[str, int, int]:
        return channel.declare_queue(
            name, passive=passive, durable=not transient, auto_delete=auto_delete, arguments=given
        )

    found, messages, consumers = run(url, "declare", work)
    text = f"queue '{found}': {counted(messages, 'message')}, {counted(consumers, 'consumer')}"
    told(text, as_json, {"queue": found, "messages": messages, "consumers": consumers})


def _binding(name: str, of_queue: Rebind, of_exchange: Rebind, text: str, help: str) -> click.Command:
    """Return the command `bind` or `unbind`, which prints `text` when it is done."""

    @click.command(name, help=help, epilog=f"Exit codes: {EXIT_CODES}.")
    @click.argument("source")
    @click.argument("destination")
    @click.option("--key", "-k", default="", metavar="KEY", help="The routing key.")
    @click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange, not a queue.")
    @ARGUMENTS
    @AS_JSON
    @WHERE
    def command(
        source: str, destination: str, key: str, to_exchange: bool, arguments: Pairs, as_json: bool, url: str
    ) -> None:
        def work(channel: BlockingChannel) -> None:
            (of_exchange if to_exchange else of_queue)(channel, destination, source, key, dict(arguments))

        _do(url, name, work)
        values = {"source": source, "destination": destination, "key": key}
        told(text.format(**values), as_json, values)

    return command


bind = _binding(
    "bind", BlockingChannel.bind_queue, BlockingChannel.bind_exchange, "'{source}' is bound to '{destination}'",
    "Bind the queue DESTINATION, or with --to-exchange the exchange, to the exchange SOURCE.",
)  # fmt: skip
unbind = _binding(
    "unbind", BlockingChannel.unbind_queue, BlockingChannel.unbind_exchange,
    "'{source}' is not bound to '{destination}' with this key",
    "Remove a binding. Succeeds even if the binding does not exist.",
)  # fmt: skip


@click.group(cls=CommandGroup, epilog=f"Exit codes: {EXIT_CODES}.")
def delete() -> None:
    """Delete an exchange or a queue. Succeeds even if it does not exist."""


@delete.command("exchange")
@click.argument("name")
@IF_UNUSED
@AS_JSON
@WHERE
def delete_exchange(name: str, if_unused: bool, as_json: bool, url: str) -> None:
    """Delete the exchange NAME, with its bindings."""
    _do(url, "delete", lambda channel: channel.delete_exchange(name, if_unused))
    told(f"exchange '{name}' deleted", as_json, {"exchange": name})


@delete.command("queue")
@click.argument("name")
@IF_UNUSED
@click.option("--if-empty", is_flag=True, help="Only if it has no messages.")
@AS_JSON
@WHERE
def delete_queue(name: str, if_unused: bool, if_empty: bool, as_json: bool, url: str) -> None:
    """Delete the queue NAME, with its messages."""
    count = run(url, "delete", lambda _, channel: channel.delete_queue(name, if_unused, if_empty))
    told(f"queue '{name}' deleted, with {counted(count, 'message')}", as_json, {"queue": name, "messages": count})


@click.command(epilog=f"Exit codes: {EXIT_CODES}.")
@click.argument("name")
@AS_JSON
@WHERE
def purge(name: str, as_json: bool, url: str) -> None:
    """Remove the ready messages of the queue NAME."""
    count = run(url, "purge", lambda _, channel: channel.purge_queue(name))
    told(f"{counted(count, 'message')} of queue '{name}' removed", as_json, {"queue": name, "messages": count})
