"""leveret trace: exit codes 0 a step was seen; 1 nothing was seen; 2 wrong options; 3 no broker, or no firehose."""

from __future__ import annotations

import json
import signal
import time
from types import FrameType
from typing import Final, NoReturn

import click

from leveret.cli.terminal import fail
from leveret.cli.trace.firehose import TracedFirehose
from leveret.cli.trace.follow import Follower, TraceFilter
from leveret.cli.trace.shown import StepPrinter
from leveret.cli.trace.switch import CtlSwitch, HttpSwitch, Switch, SwitchError
from leveret.cli.urls import URL_DEFAULT
from leveret.client import BlockingConnection, ClientError
from leveret.client.protocol.url import Address, parse_url

ADMIN_PORT: Final = 15672
EXIT_NOTHING, EXIT_UNUSABLE = 1, 3
POLL_S: Final = 0.5


@click.command("trace")
@click.option(
    "--url", metavar="URL", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True,
    help="URL of the broker; its path is the virtual host.",
)  # fmt: skip
@click.option(
    "--admin-url", metavar="URL",
    help="URL of its HTTP API, to turn the firehose on.  [default: port 15672 of the host]",
)  # fmt: skip
@click.option("--data-dir", metavar="DIR", help="Data directory of the broker, to turn the firehose on without HTTP.")
@click.option("--id", "message_id", metavar="ID", help="Only messages with this message id.")
@click.option("--correlation-id", metavar="ID", help="Only messages with this correlation id.")
@click.option("--key", metavar="KEY", help="Only messages with this routing key (CC and BCC included).")
@click.option("--exchange", metavar="NAME", help="Only messages published to this exchange.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Only messages with this header; may be repeated."
)
@click.option("--once", is_flag=True, help="Exit when a message has been delivered from each of its queues.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Exit after this time.")
@click.option("--json", "is_json", is_flag=True, help="Print each step as a line of JSON.")
def command(
    url: str, admin_url: str | None, data_dir: str | None, message_id: str | None, correlation_id: str | None,
    key: str | None, exchange: str | None, headers: tuple[str, ...], once: bool, timeout_s: float | None, is_json: bool,
) -> None:  # fmt: skip
    """Trace messages through a broker, live: published, routed, confirmed, dead-lettered, delivered.

    All filters must match; without filters, all messages are shown. Stop with Ctrl-C. The firehose is turned on if it
    is off, and off again at the end. Works on leveret and on RabbitMQ, whose firehose reports neither times nor
    confirms.
    Firehoses do not report waiting, expired or dropped messages, nor earlier publishes: docs/guides/trace-a-message.md.
    """
    address = _address(url)
    wanted = TraceFilter(message_id, correlation_id, key, exchange, tuple(_header(each) for each in headers))
    switch = _switch(address, admin_url, data_dir)
    follower = Follower(wanted)
    screen = None if is_json else StepPrinter()
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        with (
            BlockingConnection(url, name="leveret trace", reconnect=False) as connection,
            TracedFirehose(connection, switch) as firehose,
        ):
            if screen is not None:
                _tell_begin(firehose, address)
            _follow(firehose, follower, screen, until_s, once)
    except KeyboardInterrupt:
        pass
    except SwitchError as error:
        fail(EXIT_UNUSABLE, f"Error: {error}")
    except (ClientError, OSError) as error:
        fail(EXIT_UNUSABLE, f"Error: {url.rpartition('@')[2]}: {error}")
    if not follower.seen:
        fail(EXIT_NOTHING, "No messages matched.")


def _follow(
    firehose: TracedFirehose, follower: Follower, screen: StepPrinter | None, until_s: float | None, once: bool
) -> None:
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


def _tell_begin(firehose: TracedFirehose, address: Address) -> None:
    state = "turned on for this trace" if firehose.has_turned else "on"
    click.echo(f"Listening in vhost {address.vhost} (firehose {state}); Ctrl-C to stop.", err=True)


def _switch(address: Address, admin_url: str | None, data_dir: str | None) -> Switch | None:
    """Return the switch of the firehose, or None, so that its state must be probed.

    Without an explicit address, the default port of the HTTP API is tried.
    """
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
        raise click.BadParameter(f"'{text}' is not a header: write NAME=VALUE", param_hint="--header")
    return name, value


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """Exit as after Ctrl-C, so that the firehose is turned off."""
    raise KeyboardInterrupt
