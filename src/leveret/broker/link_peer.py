"""A direct connection by which a federation link publishes, and which records how far the link has got."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from leveret.broker.broker import Broker
from leveret.broker.channel import BrokerChannel
from leveret.broker.names import REPLY_PREFIX
from leveret.broker.peer import Peer
from leveret.broker.vhost import VHost
from leveret.session import lifecycle
from leveret.session.confirms import REFUSED, Confirms
from leveret.wire.errors import PRECONDITION_FAILED, SYNTAX_ERROR, ProtocolError, quoted

CHANNEL: Final = 1
FRAME_OCTETS_MAX: Final = 131072
COMPLAINTS_MAX: Final = 10
"""How many refused messages are logged per session of a link; the others are only counted."""
_OCTETS: Final[i64] = 24
_REPLY: Final = REPLY_PREFIX.encode()


class LinkPeer(Peer):
    """A connection that is open from the start, with channel 1, and for which no permission is checked.

    It serves one session of a link with its upstream. name: as a client's connection_name; key: under which the link's
    position is stored (positions.py).
    """

    def __init__(self, broker: Broker, vhost: VHost, name: str, has_confirms: bool, key: str) -> None:
        super().__init__(broker, "federation", True)
        self.client_properties = {"connection_name": name}
        self.name = f"{name} {self.number}"  # several links may have the same name
        self.is_link = True
        self.vhost, self.state = vhost, lifecycle.RUNNING
        self.frame_max = FRAME_OCTETS_MAX
        self.may_do_all()
        broker.connected(self, vhost)
        self.is_counted = True
        broker.churn.connection_created += 1
        self.position = broker.positions.of(key)  # how far the link has got
        channel = self.open_channel(CHANNEL)
        if has_confirms:
            channel.confirms = Confirms()
        self._counters = channel.counters
        # number, epoch and id of each publish that is not handled yet
        self._stands = BytesWriter()
        self._number: i64 = 0
        self._epoch: i64 = 0
        self._id: i64 = 0
        self._is_one_life = True  # all of these are of one epoch
        self._has_begun = False
        self._refused: set[int] = set()  # numbers of publishes
        # numbers of publishes that no broker would accept; each was answered with basic.nack. The link removes them.
        self.hopeless: set[int] = set()
        # the first direct reply-to name that came, which means nothing on this side; b"" = none so far
        self.dead_reply = b""
        self._complaints: i64 = 0

    def stand(self, number: i64, epoch: i64, id: i64) -> None:
        """Announce that publish number `number` of the channel, the next one, is this message of the upstream."""
        if not self._has_begun:
            self._has_begun = True
            self.position.pass_over(epoch, id)
        out = self._stands
        if len(out) == 0:
            self._is_one_life = True
        elif epoch != self._epoch:
            self._is_one_life = False
        write_i64_be(out, number)
        write_i64_be(out, epoch)
        write_i64_be(out, id)
        self._number = number
        self._epoch = epoch
        self._id = id

    def turn(self, data: bytes, now_us: int) -> bool:
        """Do what every peer does, and record messages as taken in the same batch that contains them."""
        needs_look = super().turn(data, now_us)
        if len(self._stands) > 0:
            self._record(self._counters.publish)
        self._refused.clear()
        return needs_look

    def publish(self, channel: BrokerChannel, method: bytes, data: bytes, start: i64, stop: i64) -> bool:
        """Do what every peer does, but refuse an invalid message alone.

        An error would close the channel, and the link would come back with the same message for ever.
        """
        try:
            is_repeatable = super().publish(channel, method, data, start, stop)
        except ProtocolError as error:
            if error.code not in (PRECONDITION_FAILED, SYNTAX_ERROR):
                raise
            self._drop(channel, error)
            return False
        at = self._scan_header.reply_to_at
        if at != 0 and self.dead_reply == b"" and data[at + 1 : at + 1 + len(_REPLY)] == _REPLY:
            self.dead_reply = data[at + 1 : at + 1 + data[at]]
        return is_repeatable

    def complain(self, text: str) -> None:
        """Log what is wrong with a message, COMPLAINTS_MAX times at most: publishers could otherwise fill the log."""
        self._complaints += 1
        if self._complaints > COMPLAINTS_MAX:
            return
        is_last = self._complaints == COMPLAINTS_MAX
        more = "; further messages like this one are not logged" if is_last else ""
        self.broker.tell(self, f"{quoted(self.name)}: {text}{more}")

    def _drop(self, channel: BrokerChannel, error: ProtocolError) -> None:
        self.complain(f"a message was refused: {error}")
        channel.counters.publish += 1
        self.is_publisher = True
        if channel.confirms is not None:
            self.hopeless.add(int(channel.counters.publish))
            super()._confirm(channel, 1, REFUSED)

    def _confirm(self, channel: BrokerChannel, count: i64, standing: i64) -> None:
        super()._confirm(channel, count, standing)
        if standing == REFUSED:
            last = channel.counters.publish
            self._refused.update(range(int(last - count) + 1, int(last) + 1))

    def _record(self, handled: i64) -> None:
        """Record the publishes up to number `handled`: a turn may end before all of them are handled."""
        is_plain = self._number <= handled and self._is_one_life and not self._refused
        if is_plain and self.position.is_whole(self._epoch):
            self.position.reached(self._epoch, self._id)
            self._stands.truncate(0)
            return
        self._record_each(handled)

    def _record_each(self, handled: i64) -> None:
        position = self.position
        stands = self._stands.getvalue()
        at: i64 = 0
        last: dict[int, i64] = {}  # by epoch
        while at < len(stands) and read_i64_be(stands, at) <= handled:
            number = read_i64_be(stands, at)
            epoch = read_i64_be(stands, at + 8)
            id = read_i64_be(stands, at + 16)
            at += _OCTETS
            if int(number) in self._refused:
                position.refused(epoch, id)
            elif position.is_missing(epoch, id):
                position.taken(epoch, id)
            else:
                last[int(epoch)] = id
        for epoch, id in last.items():
            position.reached(epoch, id)
        self._stands.truncate(0)
        self._stands.write(stands[at:])
