"""A link's connection into its own broker reports messages at fault without flooding the log."""

from __future__ import annotations

from leveret.broker.link_peer import CHANNEL, COMPLAINTS_MAX, LinkPeer
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .support import Bench


def test_a_flood_of_messages_at_fault_is_none_in_the_log() -> None:
    bench, events = Bench(), []
    bench.broker.on_event = events.append
    peer = LinkPeer(bench.broker, bench.broker.vhosts["/"], "a link", True, "key")
    method = method_frame(CHANNEL, grammar.BASIC_PUBLISH, exchange="amq.fanout", routing_key="k")
    header = encode_header(Properties(expiration="soon"), 1)
    wrong = method + content_frames(CHANNEL, header, b"x", 131072)
    peer.turn(wrong * 3 * COMPLAINTS_MAX, bench.now_us)
    assert len(peer.hopeless) == 3 * COMPLAINTS_MAX
    assert len(events) == COMPLAINTS_MAX
    assert all(event.startswith(f"'{peer.name}': a message was refused: 406 PRECONDITION_FAILED") for event in events)
    assert [event.endswith("are not logged") for event in events].index(True) == COMPLAINTS_MAX - 1
