"""A queue bound to the firehose of a virtual host, which is turned on meanwhile."""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
from types import TracebackType
from typing import Final, Self

from leveret.cli.trace.events import TraceEvent, event_of
from leveret.cli.trace.switch import Switch, SwitchError
from leveret.client import BlockingConnection
from leveret.wire.table import Value

EXCHANGE: Final = "amq.rabbitmq.trace"
AUDIT: Final = "x-leveret-audit"
"""Binding argument that makes leveret send times and confirms, too; RabbitMQ ignores it."""
QUEUE: Final = "leveret.trace."
# a slow reader misses the oldest events, instead of filling the broker's memory
LIMITS: Final[dict[str, Value]] = {"x-max-length": 100_000, "x-max-length-bytes": 64 << 20}
PROBE_S: Final = 2.0


class TracedFirehose:
    """The firehose within a `with` block; turned off at the end if it was off before.

    Without a switch it must be on already, which is probed; SwitchError if it is off.
    """

    def __init__(self, connection: BlockingConnection, switch: Switch | None) -> None:
        self._connection = connection
        self._switch = switch
        self._channel = connection.channel()
        self.has_turned = False  # whether it was off before

    def __enter__(self) -> Self:
        queue = QUEUE + secrets.token_hex(6)
        self._channel.declare_queue(queue, exclusive=True, auto_delete=True, arguments=LIMITS)
        # bind before turning it on, so that no event is missed
        self._channel.bind_queue(queue, EXCHANGE, "#", arguments={AUDIT: True})
        self._channel.consume(queue, no_ack=True)
        if self._switch is None:
            self._probe()
        elif not self._switch.is_on():
            self.has_turned = True
            try:
                self._switch.turn(True)
            except BaseException:  # it may have been turned on nevertheless
                with contextlib.suppress(SwitchError):
                    self._switch.turn(False)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.has_turned and self._switch is not None:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore a second Ctrl-C
            try:
                self._switch.turn(False)
            except SwitchError as trouble:
                raise SwitchError(f"the firehose is still on, run `leveret ctl trace_off`: {trouble}") from None
            finally:
                signal.signal(signal.SIGINT, before)

    def next_event(self, timeout_s: float) -> TraceEvent | None:
        """Return the next event; None after the timeout, or if the message was no event."""
        delivery = self._channel.next_delivery(timeout_s)
        return None if delivery is None else event_of(delivery, time.time())

    def _probe(self) -> None:
        """Publish a message without a destination, and check that the firehose reports it."""
        key = QUEUE + "probe." + secrets.token_hex(6)
        with self._connection.channel() as channel:
            channel.publish(b"", "", key)
            channel.flush()
            until_s = time.monotonic() + PROBE_S
            while (left_s := until_s - time.monotonic()) > 0:
                event = self.next_event(left_s)
                if event is not None and key in event.names("routing_keys"):
                    return
        raise SwitchError(
            "the firehose is off: turn it on with `leveret ctl trace_on` or `rabbitmqctl trace_on`, or give "
            "--admin-url or --data-dir"
        )
