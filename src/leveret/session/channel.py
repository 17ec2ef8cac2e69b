"""One channel: its state, the content it is assembling, its confirms and its unacknowledged deliveries."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.session.assembly import Assembly
from leveret.session.confirms import Confirms
from leveret.session.lifecycle import OPEN
from leveret.session.unacked import Unacked


class Channel:
    """What the session keeps of a channel; the broker's channel adds consumers."""

    def __init__(self, number: int) -> None:
        self.number: i64 = number
        self.state = OPEN
        self.assembly: Assembly | None = None
        self.confirms: Confirms | None = None
        self.unacked = Unacked()
        self.next_tag: i64 = 1
        # raw publish method that came last, to tell runs of one route with a single comparison
        self.last_method = b""
