"""leveret ctl drain: connects to both brokers, shows a progress bar, and explains errors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final
from urllib.parse import quote

from rich import progress
from rich.console import Console

from leveret.cli.ctl.exits import DATA, SOFTWARE, UNAVAILABLE, Failed
from leveret.client import ClientError, Connection, connect
from leveret.client.drain import Drain, DrainStopped, Progress
from leveret.client.protocol.url import Address, parse_url
from leveret.control.calls.blocking import ControlClient

NAME: Final = "leveret ctl drain"
NOTHING_LOST: Final = "No message was lost: unconfirmed messages are still in the source queue. Run the command again."
ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def drain(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> dict[str, object]:
    """Move the messages and return how many were moved. Raises Failed or TimeoutError.

    `fields` has the queue's `name` and `vhost`, and the command's options.
    """
    name, vhost = str(fields["name"]), str(fields["vhost"])
    to_name = str(fields["queue"] or name)
    to = _address("--to", str(fields["to"]))
    declaration = None
    if fields["from"] is None:
        with ControlClient(data_dir, timeout_s=timeout_s) as control:
            declaration = control.call(command, name=name, vhost=vhost)
            source_url = _own_url(control.call("status"), vhost)
    else:
        source_url = str(fields["from"])
    source = _address("--from", source_url)
    if (*_place(source), name) == (*_place(to), to_name):
        raise Failed("Error (argument validation): source and target are the same queue; use --queue", DATA)
    for option in ("count", "prefetch"):
        value = fields[option]
        if isinstance(value, int) and not 0 < value <= (65535 if option == "prefetch" else value):
            raise Failed(f"Error (argument validation): --{option} must be at least 1, not {value}", DATA)
    if fields["declare"] and declaration is None:
        text = "--declare needs the queue's arguments from the data directory's broker; AMQP does not report them.\n"
        raise Failed(f"{text}With --from, declare the queue there first, or import the definitions.", DATA)
    moved = Progress()
    try:
        asyncio.run(_within(timeout_s, _drain(source_url, name, fields, to_name, declaration, moved)))
    except KeyboardInterrupt:
        if not fields["follow"]:
            raise Failed(f"interrupted: {moved.moved:,} messages were moved. {NOTHING_LOST}", UNAVAILABLE) from None
    return {"moved": moved.moved, "without_user_id": moved.unnamed}


async def _within(timeout_s: float | None, work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(timeout_s):
        await work


async def _drain(
    source_url: str, name: str, fields: dict[str, object], to_name: str, declaration: Any, moved: Progress
) -> None:
    target_url, count, prefetch = str(fields["to"]), fields["count"], fields["prefetch"]
    try:
        async with (
            await connect(source_url, name=NAME, reconnect=False) as source,
            await connect(target_url, name=NAME, reconnect=False) as target,
        ):
            if fields["declare"]:
                await _declare(target, to_name, declaration)
            with _Bar(name) as bar:
                work = Drain(
                    source, name, target, to_name, parse_url(target_url).user,
                    count=count if isinstance(count, int) else None, follows=bool(fields["follow"]),
                    prefetch=prefetch if isinstance(prefetch, int) else 1, progress=moved, on_progress=bar.show,
                )  # fmt: skip
                await work.run()
    except DrainStopped as error:
        text = f"Error:\n{error}\n{moved.moved:,} messages were moved; the others are still in the source queue."
        raise Failed(text, SOFTWARE) from None
    except ClientError as error:
        raise Failed(f"Error:\n{error}\n{moved.moved:,} messages were moved. {NOTHING_LOST}", UNAVAILABLE) from None
    except OSError as error:
        raise Failed(f"Error:\n{error}", UNAVAILABLE) from None


async def _declare(target: Connection, name: str, declaration: Any) -> None:
    """Declare the queue as on this broker; an equal queue may exist already."""
    channel = await target.channel()
    await channel.declare_queue(
        name,
        durable=declaration["durable"],
        auto_delete=declaration["auto_delete"],
        arguments=declaration["arguments"],
    )
    await channel.close()


def _address(option: str, url: str) -> Address:
    try:
        return parse_url(url)
    except ValueError as error:
        raise Failed(f"Error (argument validation): {option}: {error}", DATA) from None


def _own_url(status: Any, vhost: str) -> str:
    """Return a URL for the data directory's broker, as user guest. Raises Failed if it listens with TLS only."""
    for listener in status["listeners"]:
        if listener["protocol"] == "amqp":
            host = ANY_ADDRESS.get(listener["interface"], listener["interface"])
            host = f"[{host}]" if ":" in host and not host.startswith("[") else host
            return f"amqp://guest:guest@{host}:{listener['port']}/{quote(vhost, safe='')}"
    raise Failed("Error:\nthis broker listens with TLS only: give its URL with --from", UNAVAILABLE)


def _place(address: Address) -> tuple[str, int, str]:
    host = "localhost" if address.host in ("127.0.0.1", "::1") else address.host
    return host, address.port, address.vhost


class _Bar:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, queue: str) -> None:
        console = Console(stderr=True)
        columns = (
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = progress.Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task(queue, total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, news: Progress) -> None:
        """Show the progress."""
        self._progress.update(self._task, completed=news.moved, total=max(news.total, news.moved))
