"""One channel: its state, an incomplete content, its confirms and its unacknowledged deliveries."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.session.assembly import Assembly
from leveret.session.confirms import Confirms
from leveret.session.handler import ChannelHandler
from leveret.session.lifecycle import OPEN
from leveret.session.unacked import Unacked


class Channel(ChannelHandler):
    """The session's state of a channel; the broker's channel adds consumers, and handles what is received."""

    def __init__(self, number: int) -> None:
        self.number: i64 = number
        self.state = OPEN
        self.assembly: Assembly | None = None
        self.confirms: Confirms | None = None
        self.unacked = Unacked()
        self.next_tag: i64 = 1
        # the last raw publish method, which recognises a run of the same route by a single comparison
        self.last_method = b""
