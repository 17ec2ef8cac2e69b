"""leveret timeouts status | run | import | drain | remove: the timeouts of an endpoint, on the way to native delays.

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

from leveret.cli.options import Group
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
class Place:
    """What the options of every command say."""

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


@click.group("timeouts", cls=Group)
def command() -> None:
    """Timeouts of endpoints that know no native delay (docs/guides/legacy-timeouts.md)."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """The options of every command; the function gets a Place."""

    def with_place(
        endpoint: str, database: str | None, url: str, routing: str, error_queue: str, **options: Any
    ) -> None:
        function(Place(endpoint, database, url, RoutingTopology(routing), error_queue), **options)

    with_place.__doc__ = function.__doc__
    with_place.__name__ = function.__name__
    with_place.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Callable[..., None] = with_place
    for option in (
        click.option("--error-queue", default="error", show_default=True, help="Where goes what can not be sent."),
        click.option(
            "--routing",
            type=click.Choice([one.value for one in RoutingTopology]),
            default="conventional",
            show_default=True,
            help="The routing topology of the endpoints.",
        ),
        click.option("--url", envvar="LEVERET_URL", default=URL, show_default=True, help="The broker."),
        click.option(
            "--database",
            metavar="URL",
            help="sqlite:///FILE or postgresql://…; the file ENDPOINT.timeouts.sqlite in this directory if not given.",
        ),
        click.option("--endpoint", required=True, help="The endpoint whose timeouts they are."),
    ):
        decorated = option(decorated)
    return decorated


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@command.command()
@_options
@_json
def status(place: Place, as_json: bool) -> None:
    """How many timeouts wait, when the next one is due, and what lies in the queues."""

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
    click.echo(f"next due: {found['next_due'] or 'nothing waits'}")
    for failing in found["failing"]:
        click.echo(f"failing: {failing['count']} for {failing['destination']}: {failing['error']}")
    for name, info in found["queues"].items():
        counts = "does not exist" if info is None else f"{info['messages']} messages, {info['consumers']} consumers"
        click.echo(f"queue {name}: {counts}")


@command.command()
@_options
def run(place: Place) -> None:
    """Run the timeout manager alone, until SIGTERM or SIGINT: for an endpoint that is not run any more."""
    logs.configure("info", "text")
    _guarded(lambda: _run(place))


async def _run(place: Place) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    manager = TimeoutManager(place.endpoint, place.database, routing=place.routing, error_queue=place.error_queue)
    pause_s = 0.5
    while not stopping.is_set():
        try:
            async with await connect(place.url, name=f"timeouts of {place.endpoint}") as connection:
                await manager.start(connection)
                click.echo(f"the timeout manager of {place.endpoint} runs")
                pause_s = 0.5
                while not (stopping.is_set() or connection.is_closed):
                    await _set_or_elapsed(stopping, 0.5)
                await manager.stop()
        except ClientError as error:
            await manager.stop()
            logging.getLogger("leveret.timeouts").warning("%s; again in %g s", error, pause_s)
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
    help="The delay levels to move them to.",
)
@_json
def drain_command(place: Place, layout: str, as_json: bool) -> None:
    """Move what waits into the native delay levels, with what is left of each delay. May be started again."""

    async def move(connection: Connection) -> Drained:
        store = place.store()
        store.create()

        def waiting(seconds: float) -> None:
            click.echo(f"waiting for what a timeout manager is sending, {seconds:.0f} s at most", err=True)

        return await drain(connection, store, place.queues, LAYOUTS[layout], waiting=waiting)

    drained = _connected(place, move)
    _tell(f"moved to the delay levels {layout}", drained.moved, Counter(drained.kept.values()), as_json)


def _tell(done: str, moved: int, reasons: Counter[str], as_json: bool) -> None:
    """How many went and how many stay, with the reasons; what stays makes the exit code 1."""
    if as_json:
        click.echo(json.dumps({"moved": moved, "kept": reasons.total(), "reasons": reasons}))
    else:
        click.echo(f"{moved} {done}, {reasons.total()} stay")
        for reason, count in reasons.items():
            click.echo(f"{count} stay: {reason}")
    if reasons:
        sys.exit(EXIT_LEFT)


@command.command("import")
@_options
@click.option(
    "--from", "source_url", metavar="URL", required=True, help="The database of NServiceBus' SQL persistence."
)
@click.option("--table", help="Its table of timeouts; ENDPOINT_TimeoutData if not given.")
@_json
def import_command(place: Place, source_url: str, table: str | None, as_json: bool) -> None:
    """Move the timeouts that NServiceBus stored itself into the store. Stop the older endpoint first."""

    async def transfer() -> Imported:
        from leveret.endpoint.timeouts.importing import Source, move

        store = place.store()
        source = Source(place.endpoint, source_url, table)
        store.create()
        return move(source, store)

    imported = _guarded(transfer)
    _tell("imported", imported.moved, Counter(imported.kept.values()), as_json)


@command.command("remove")
@_options
@click.option("--force", is_flag=True, help="Delete them with everything that waits in them.")
@_json
def remove_command(place: Place, force: bool, as_json: bool) -> None:
    """Delete the queues, exchanges and tables of the timeout manager; refused while anything waits there."""

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


def _connected(place: Place, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    async def with_connection() -> T:
        async with await connect(place.url, name=f"leveret timeouts {place.endpoint}") as connection:
            return await work(connection)

    return _guarded(with_connection)


def _guarded(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The work's result; what is in its way is told in a line."""
    try:
        return asyncio.run(work())
    except ConnectionClosed as error:
        click.echo(f"no broker: {error}", err=True)
    except (TimeoutsUnavailable, ValueError) as error:
        click.echo(str(error), err=True)
    except ClientError as error:
        click.echo(f"the broker refused: {error}", err=True)
        sys.exit(EXIT_LEFT)
    sys.exit(EXIT_UNUSABLE)
