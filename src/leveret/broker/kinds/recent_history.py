"""x-recent-history: a fanout that keeps its last messages for whoever is bound later (RabbitMQ's plugin)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.broker.terms import shown, type_of
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.binding import Binding

LENGTH: Final = "x-recent-history-length"
NO_STORE: Final = b"x-recent-history-no-store"
LENGTH_DEFAULT: Final = 20
_INTEGERS: Final = ("byte", "short", "signedint", "long")


def refused(arguments: dict[bytes, bytes]) -> str:
    """The text of the 406 that an exchange with these arguments deserves, "" if they are fine."""
    length = arguments.get(LENGTH.encode())
    if length is None or (type_of(length) in _INTEGERS and int(shown(length)) > 0):
        return ""
    return f"Invalid argument {shown(length)}, '{LENGTH}' must be a positive integer"


class RecentHistory(Matcher):
    """history: the last messages, oldest first; those that asked for it with the header no-store are not among them."""

    def __init__(self, bindings: dict[int, Binding], arguments: dict[str, Value], random_bytes: RandomBytes) -> None:
        super().__init__(bindings, arguments, random_bytes)
        self.is_per_message = True
        length = arguments.get(LENGTH)
        self.history: deque[Envelope] = deque(maxlen=length if isinstance(length, int) else LENGTH_DEFAULT)

    def match(self, envelope: Envelope) -> list[Binding]:
        if envelope.headers().get(NO_STORE) != b"t\1":
            self.history.append(envelope)
        return list(self.bindings.values())
