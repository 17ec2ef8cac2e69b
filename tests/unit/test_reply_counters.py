"""Counters of direct replies: delivered at the requester's channel, dropped at the publisher's channel."""

from __future__ import annotations

import pytest

from leveret.broker.totals import Totals
from leveret.wire import grammar

from .admin import Browser
from .support import Bench, Client

REPLY_TO = "amq.rabbitmq.reply-to"


class Scene:
    """A requester, a replier, and the requester's address for replies."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.requester, self.replier = self.bench.connect(), self.bench.connect()
        self.requester.call(1, grammar.BASIC_CONSUME, queue=REPLY_TO, no_ack=True, consumer_tag="mine")
        self.name = next(iter(self.bench.broker.vhosts["/"].replies))

    def counts(self, client: Client) -> tuple[int, int]:
        channel = client.peer.channels[1]
        return int(channel.reply_to_delivered), int(channel.reply_to_dropped)

    def totals(self) -> tuple[int, int]:
        vhost = self.bench.broker.vhosts["/"]
        totals = Totals(vhost)
        totals.add_channels(list(vhost.channels))
        return int(totals.replies_delivered), int(totals.replies_dropped)


def test_a_reply_counts_where_it_arrives() -> None:
    scene = Scene()
    for _ in range(3):
        scene.replier.publish(scene.name, b"reply")
    assert scene.counts(scene.requester) == (3, 0)
    assert scene.counts(scene.replier) == (0, 0)


@pytest.mark.parametrize("how", ["cancelled", "closed", "lost"])
def test_a_reply_to_nobody_counts_where_it_was_published(how: str) -> None:
    scene = Scene()
    scene.replier.publish(scene.name, b"in time")
    if how == "cancelled":
        scene.requester.call(1, grammar.BASIC_CANCEL, consumer_tag="mine")
    elif how == "closed":
        scene.requester.call(1, grammar.CHANNEL_CLOSE, reply_code=200)
    else:
        scene.requester.peer.lost(scene.bench.now_us)
    scene.replier.publish(scene.name, b"too late")
    scene.replier.publish(scene.name, b"too late, too")
    assert scene.counts(scene.replier) == (0, 2)
    assert scene.totals() == (1, 2)  # the totals include closed channels
    scene.replier.call(1, grammar.CHANNEL_CLOSE, reply_code=200)
    assert scene.totals() == (1, 2)


def test_a_made_up_name_is_a_dropped_reply_and_a_missing_queue_is_not() -> None:
    scene = Scene()
    scene.replier.publish(f"{REPLY_TO}.made-up", b"m")
    scene.replier.publish("no-such-queue", b"m")
    scene.replier.publish(REPLY_TO, b"m")
    assert scene.counts(scene.replier) == (0, 1)


def test_beside_a_queue_by_cc_and_in_a_transaction() -> None:
    scene = Scene()
    scene.replier.queue("q")
    scene.replier.publish("q", b"m", headers={"CC": [scene.name, f"{REPLY_TO}.gone"]})
    assert (scene.counts(scene.requester), scene.counts(scene.replier)) == ((1, 0), (0, 1))
    scene.replier.call(1, grammar.TX_SELECT)
    scene.replier.publish(f"{REPLY_TO}.gone", b"m")  # replies do not wait for the commit
    assert scene.counts(scene.replier) == (0, 2)


async def test_channels_with_replies_are_asked_for_over_http() -> None:
    browse = Browser()
    browse.control.answers["list_channels"] = lambda _: [{"name": "c"}]
    assert (await browse("GET", "/api/channels?replies=true")).json() == [{"name": "c"}]
    assert browse.control.fields_of("list_channels") == {"replies": True}
