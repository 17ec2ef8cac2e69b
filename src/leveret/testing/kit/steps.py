"""Detection of steps, the AMQP methods in STEPS, in the bytes of a connection."""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.wire import grammar
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD

CLIENT: Final = "client"
BROKER: Final = "broker"

# step -> (the side that sends it, the method's key)
STEPS: Final[dict[str, tuple[str, int]]] = {
    "login": (CLIENT, grammar.CONNECTION_START_OK.key),
    "open": (CLIENT, grammar.CONNECTION_OPEN.key),
    "channel": (CLIENT, grammar.CHANNEL_OPEN.key),
    "declare": (CLIENT, grammar.QUEUE_DECLARE.key),
    "bind": (CLIENT, grammar.QUEUE_BIND.key),
    "consume": (CLIENT, grammar.BASIC_CONSUME.key),
    "get": (CLIENT, grammar.BASIC_GET.key),
    "publish": (CLIENT, grammar.BASIC_PUBLISH.key),
    "ack": (CLIENT, grammar.BASIC_ACK.key),
    "reject": (CLIENT, grammar.BASIC_REJECT.key),
    "nack": (CLIENT, grammar.BASIC_NACK.key),
    "commit": (CLIENT, grammar.TX_COMMIT.key),
    "confirm": (BROKER, grammar.BASIC_ACK.key),
    "deliver": (BROKER, grammar.BASIC_DELIVER.key),
    "commit-ok": (BROKER, grammar.TX_COMMIT_OK.key),
}
_WITH_CONTENT: Final = (grammar.BASIC_PUBLISH.key, grammar.BASIC_DELIVER.key)
_HEAD_OCTETS: Final = 7
_PROTOCOL_HEADER_OCTETS: Final = 8


class Step(NamedTuple):
    """A method in one direction of a connection.

    Attributes:
        method: its key.
        start, stop: its position, with its content, in the bytes fed last; negative if it began in earlier ones.
    """

    method: int
    start: int
    stop: int


class Steps:
    """A parser of one direction of a connection."""

    def __init__(self, said_by: str) -> None:
        self._passes = _PROTOCOL_HEADER_OCTETS if said_by == CLIENT else 0
        self._rest = b""
        # by channel: the method that waits for its content, its start, and the missing octets of its body (-1: no
        # header yet)
        self._open: dict[int, tuple[int, int, int]] = {}

    def feed(self, data: bytes) -> list[Step]:
        """Return the methods that end in these bytes."""
        passed = min(self._passes, len(data))
        self._passes -= passed
        base = passed - len(self._rest)
        buffer = self._rest + data[passed:]
        found: list[Step] = []
        at = 0
        while len(buffer) - at >= _HEAD_OCTETS:
            size = int.from_bytes(buffer[at + 3 : at + 7], "big")
            stop = at + size + _HEAD_OCTETS + 1
            if stop > len(buffer):
                break
            step = self._frame(buffer[at], int.from_bytes(buffer[at + 1 : at + 3], "big"), buffer, at, stop, base)
            if step is not None:
                found.append(step)
            at = stop
        self._rest = buffer[at:]
        moved = len(data)
        for channel, (method, start, left) in self._open.items():
            self._open[channel] = (method, start - moved, left)
        return found

    def _frame(self, kind: int, channel: int, buffer: bytes, at: int, stop: int, base: int) -> Step | None:
        if kind == FRAME_METHOD:
            method = int.from_bytes(buffer[at + 7 : at + 11], "big")
            if method not in _WITH_CONTENT:
                return Step(method, base + at, base + stop)
            self._open[channel] = (method, base + at, -1)
            return None
        if kind not in (FRAME_HEADER, FRAME_BODY) or channel not in self._open:
            return None
        method, start, left = self._open[channel]
        if kind == FRAME_HEADER:
            left = int.from_bytes(buffer[at + 11 : at + 19], "big")
        else:
            left -= stop - at - _HEAD_OCTETS - 1
        if left > 0:
            self._open[channel] = (method, start, left)
            return None
        del self._open[channel]
        return Step(method, start, base + stop)
