"""leveret timeouts status | run | import | drain | remove: moves an endpoint's stored timeouts to native delays.

Exit codes: 0 done; 1 something is left, or refused; 2 wrong options, no database, or no connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from leveret.cli.options import CommandGroup
from leveret.client import ClientError, Connection, ConnectionClosed, connect
from leveret.delay import LAYOUTS
from leveret.delay.routing import RoutingTopology
from leveret.endpoint.timeouts import Drained, TimeoutManager, TimeoutQueues, TimeoutsUnavailable, drain
from leveret.endpoint.timeouts.clock import Clock
from leveret.endpoint.timeouts.manager import open_store
from leveret.endpoint.timeouts.removal import remove
from leveret.endpoint.timeouts.timeout import instant
from leveret.net import logs

if TYPE_CHECKING:
    from leveret.endpoint.timeouts.importing import Imported
    from leveret.endpoint.timeouts.store import TimeoutStore

T = TypeVar("T")
EXIT_LEFT: Final = 1
EXIT_UNUSABLE: Final = 2
URL: Final = "amqp://guest:guest@localhost:5672/"
RECONNECT_S_MAX: Final = 30.0


@dataclass(frozen=True)
class StoreOptions:
    """The options that all commands have."""

    endpoint: str
    database: str | None
    url: str
    routing: RoutingTopology
    error_queue: str

    @property
    def queues(self) -> TimeoutQueues:
        return TimeoutQueues(self.endpoint, self.routing, self.error_queue)

    def store(self) -> TimeoutStore:
        return open_store(self.endpoint, self.database)


@click.group("timeouts", cls=CommandGroup)
def command() -> None:
    """Timeout manager for endpoints without native delays (docs/guides/legacy-timeouts.md)."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all commands; the function gets a Place."""

    def with_place(
        endpoint: str, database: str | None, url: str, routing: str, error_queue: str, **options: Any
    ) -> None:
        function(StoreOptions(endpoint, database, url, RoutingTopology(routing), error_queue), **options)

    with_place.__doc__ = function.__doc__
    with_place.__name__ = function.__name__
    with_place.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Callable[..., None] = with_place
    for option in (
        click.option("--error-queue", default="error", show_default=True, help="Queue for failed timeouts."),
        click.option(
            "--routing",
            type=click.Choice([one.value for one in RoutingTopology]),
            default="conventional",
            show_default=True,
            help="Routing topology of the endpoints.",
        ),
        click.option("--url", envvar="LEVERET_URL", default=URL, show_default=True, help="URL of the broker."),
        click.option(
            "--database",
            metavar="URL",
            help="sqlite:///FILE or postgresql://…  [default: the file ENDPOINT.timeouts.sqlite in this directory]",
        ),
        click.option("--endpoint", required=True, help="Endpoint that owns the timeouts."),
    ):
        decorated = option(decorated)
    return decorated


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@command.command()
@_options
@_json
def status(place: StoreOptions, as_json: bool) -> None:
    """Show the number of pending timeouts, the next due time, and the state of the queues."""

    async def look(connection: Connection) -> dict[str, Any]:
        store = place.store()
        found: dict[str, Any] = {"endpoint": place.endpoint, "database": store.place}
        if store.exists():
            store.create()
            census = asdict(store.census(Clock().now_us()))
        else:
            census = {"pending": 0, "due": 0, "claimed": 0, "next_due_us": None, "failing": []}
        next_us = census.pop("next_due_us")
        found |= census | {"next_due": None if next_us is None else instant(next_us).isoformat()}
        found["queues"] = {
            name: None if info is None else {"messages": info.message_count, "consumers": info.consumer_count}
            for name, info in (await place.queues.info(connection)).items()
        }
        return found

    found = _connected(place, look)
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{found['endpoint']} in {found['database']}")
    click.echo(f"pending: {found['pending']}, due: {found['due']}, being sent: {found['claimed']}")
    click.echo(f"next due: {found['next_due'] or 'none pending'}")
    for failing in found["failing"]:
        click.echo(f"failing: {failing['count']} for {failing['destination']}: {failing['error']}")
    for name, info in found["queues"].items():
        counts = "does not exist" if info is None else f"{info['messages']} messages, {info['consumers']} consumers"
        click.echo(f"queue {name}: {counts}")


@command.command()
@_options
def run(place: StoreOptions) -> None:
    """Run the timeout manager on its own until SIGTERM or SIGINT: for an endpoint that is out of service."""
    logs.configure("info", "text")
    _guarded(lambda: _run(place))


async def _run(place: StoreOptions) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    manager = TimeoutManager(place.endpoint, place.database, routing=place.routing, error_queue=place.error_queue)
    pause_s = 0.5
    while not stopping.is_set():
        try:
            async with await connect(place.url, name=f"timeouts of {place.endpoint}", reconnect=False) as connection:
                await manager.start(connection)
                click.echo(f"the timeout manager of {place.endpoint} runs")
                pause_s = 0.5
                while not (stopping.is_set() or connection.is_closed):
                    await _set_or_elapsed(stopping, 0.5)
                await manager.stop()
        except ClientError as error:
            await manager.stop()
            logging.getLogger("leveret.timeouts").warning("%s; retrying in %g s", error, pause_s)
            await _set_or_elapsed(stopping, pause_s)
            pause_s = min(2 * pause_s, RECONNECT_S_MAX)
    manager.close()


async def _set_or_elapsed(event: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        pass


@command.command("drain")
@_options
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    default="nservicebus",
    show_default=True,
    help="Delay levels to move the timeouts to.",
)
@_json
def drain_command(place: StoreOptions, layout: str, as_json: bool) -> None:
    """Move pending timeouts to native delay levels, keeping their remaining delays. Safe to repeat."""

    async def move(connection: Connection) -> Drained:
        store = place.store()
        store.create()

        def waiting(seconds: float) -> None:
            click.echo(f"waiting up to {seconds:.0f} s for timeouts that are being sent", err=True)

        return await drain(connection, store, place.queues, LAYOUTS[layout], waiting=waiting)

    drained = _connected(place, move)
    _tell(f"moved to the delay levels {layout}", drained.moved, Counter(drained.kept.values()), as_json)


def _tell(done: str, moved: int, reasons: Counter[str], as_json: bool) -> None:
    """Print the numbers of moved and kept timeouts, with reasons. Exits with code 1 if some were kept."""
    if as_json:
        click.echo(json.dumps({"moved": moved, "kept": reasons.total(), "reasons": reasons}))
    else:
        click.echo(f"{moved} {done}, {reasons.total()} not moved")
        for reason, count in reasons.items():
            click.echo(f"{count} not moved: {reason}")
    if reasons:
        sys.exit(EXIT_LEFT)


@command.command("import")
@_options
@click.option(
    "--from", "source_url", metavar="URL", required=True, help="The database of NServiceBus' SQL persistence."
)
@click.option("--table", help="Its table of timeouts.  [default: ENDPOINT_TimeoutData]")
@_json
def import_command(place: StoreOptions, source_url: str, table: str | None, as_json: bool) -> None:
    """Import timeouts from NServiceBus' own store. Stop the older endpoint first."""

    async def transfer() -> Imported:
        from leveret.endpoint.timeouts.importing import TimeoutTable, move

        store = place.store()
        source = TimeoutTable(place.endpoint, source_url, table)
        store.create()
        return move(source, store)

    imported = _guarded(transfer)
    _tell("imported", imported.moved, Counter(imported.kept.values()), as_json)


@command.command("remove")
@_options
@click.option("--force", is_flag=True, help="Delete them with all pending timeouts.")
@_json
def remove_command(place: StoreOptions, force: bool, as_json: bool) -> None:
    """Delete the queues, exchanges and tables of the timeout manager; refused while timeouts are pending."""

    async def delete(connection: Connection) -> list[str]:
        return await remove(connection, place.store(), place.queues, force)

    refused = _connected(place, delete)
    if as_json:
        click.echo(json.dumps({"removed": not refused, "refused": refused}))
    elif refused:
        click.echo("\n".join([f"nothing of {place.endpoint} was removed:", *refused]), err=True)
    else:
        click.echo(f"removed the timeout queues, exchanges and tables of {place.endpoint}")
    if refused:
        sys.exit(EXIT_LEFT)


def _connected(place: StoreOptions, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    async def with_connection() -> T:
        async with await connect(place.url, name=f"leveret timeouts {place.endpoint}", reconnect=False) as connection:
            return await work(connection)

    return _guarded(with_connection)


def _guarded(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of the coroutine; errors are reported on one line, with an exit code."""
    try:
        return asyncio.run(work())
    except ConnectionClosed as error:
        click.echo(f"cannot reach the broker: {error}", err=True)
    except (TimeoutsUnavailable, ValueError) as error:
        click.echo(str(error), err=True)
    except ClientError as error:
        click.echo(f"the broker refused the operation: {error}", err=True)
        sys.exit(EXIT_LEFT)
    sys.exit(EXIT_UNUSABLE)
