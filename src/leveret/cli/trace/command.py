"""leveret trace: exit codes 0 a step was seen; 1 nothing was seen; 2 wrong options; 3 no broker, or no firehose."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Final, NoReturn

import click

from leveret.cli.trace.firehose import Firehose
from leveret.cli.trace.follow import Follower, Wanted
from leveret.cli.trace.shown import Screen
from leveret.cli.trace.switch import CtlSwitch, HttpSwitch, Switch, SwitchError
from leveret.client import BlockingConnection, ClientError
from leveret.client.url import Address, parse_url

URL: Final = "amqp://guest:guest@localhost:5672/"
ADMIN_PORT: Final = 15672
EXIT_NOTHING, EXIT_UNUSABLE = 1, 3
POLL_S: Final = 0.5


@click.command("trace")
@click.option(
    "--url",
    metavar="URL",
    envvar="LEVERET_URL",
    default=URL,
    show_default=True,
    help="The broker; its path is the vhost.",
)
@click.option(
    "--admin-url", metavar="URL", help="Its HTTP API, to turn the firehose on.  [default: port 15672 of the host]"
)
@click.option("--data-dir", metavar="DIR", help="Its data directory, to turn the firehose on without HTTP.")
@click.option("--id", "message_id", metavar="ID", help="The message with this id.")
@click.option("--correlation-id", metavar="ID", help="Messages with this correlation id.")
@click.option("--key", metavar="KEY", help="Messages with this routing key (CC and BCC count).")
@click.option("--exchange", metavar="NAME", help="Messages published to this exchange.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Messages with this header; may be repeated."
)
@click.option("--once", is_flag=True, help="End when a message has been delivered from each of its queues.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="End after so long.")
@click.option("--json", "is_json", is_flag=True, help="A line of JSON for each step.")
def command(
    url: str, admin_url: str | None, data_dir: str | None, message_id: str | None, correlation_id: str | None,
    key: str | None, exchange: str | None, headers: tuple[str, ...], once: bool, timeout_s: float | None, is_json: bool,
) -> None:  # fmt: skip
    """Follow messages through a broker, live: published, routed, confirmed, dead-lettered, delivered.

    All that is said must fit; without any of it every message is shown. Ends with Ctrl-C. The firehose is turned on if
    it is off, and off again at the end. Works on leveret and on RabbitMQ, whose firehose tells neither times nor
    confirms.
    No firehose tells what waits, expires or is dropped, nor what was published before: docs/guides/trace-a-message.md.
    """
    address = _address(url)
    wanted = Wanted(message_id, correlation_id, key, exchange, tuple(_header(each) for each in headers))
    switch = _switch(address, admin_url, data_dir)
    follower = Follower(wanted)
    screen = None if is_json else Screen()
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        with BlockingConnection(url, name="leveret trace") as connection, Firehose(connection, switch) as firehose:
            if screen is not None:
                _tell_begin(firehose, address)
            _follow(firehose, follower, screen, until_s, once)
    except KeyboardInterrupt:
        pass
    except SwitchError as error:
        _end(f"Error: {error}")
    except (ClientError, OSError) as error:
        _end(f"Error: {_bare(url)}: {error}")
    if not follower.seen:
        click.echo("Nothing was seen.", err=True)
        sys.exit(EXIT_NOTHING)


def _follow(firehose: Firehose, follower: Follower, screen: Screen | None, until_s: float | None, once: bool) -> None:
    while not (once and follower.is_done):
        left_s = POLL_S if until_s is None else min(POLL_S, until_s - time.monotonic())
        if left_s <= 0:
            return
        event = firehose.next_event(left_s)
        for step in follower.steps(event) if event is not None else ():
            if screen is None:
                click.echo(json.dumps(step, ensure_ascii=False, separators=(",", ":")))
            else:
                screen.show(step)


def _tell_begin(firehose: Firehose, address: Address) -> None:
    state = "turned on until the end" if firehose.has_turned else "on"
    click.echo(f"Listening in vhost {address.vhost} (firehose {state}); Ctrl-C ends.", err=True)


def _switch(address: Address, admin_url: str | None, data_dir: str | None) -> Switch | None:
    """What turns the firehose; None: whether it is on must be tried out. Without being told where, the usual port is
    asked, and if nobody answers there, nobody is."""
    if data_dir is not None:
        return CtlSwitch(data_dir, address.vhost)
    host = f"[{address.host}]" if ":" in address.host else address.host
    try:
        switch = HttpSwitch(admin_url or f"http://{host}:{ADMIN_PORT}", address.vhost, address.user, address.password)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--admin-url") from None
    if admin_url is None:
        try:
            switch.is_on()
        except SwitchError:
            return None
    return switch


def _address(url: str) -> Address:
    try:
        return parse_url(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None


def _header(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not name or not is_there:
        raise click.BadParameter(f"'{text}' is no header; write NAME=VALUE", param_hint="--header")
    return name, value


def _bare(url: str) -> str:
    return url.rpartition("@")[2]


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """A polite end, as after Ctrl-C: the firehose must not stay on."""
    raise KeyboardInterrupt


def _end(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(EXIT_UNUSABLE)
