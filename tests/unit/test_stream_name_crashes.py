"""A crash at every disk operation while a named consumer acknowledges and a publisher repeats messages."""

from __future__ import annotations

import pytest

from leveret.broker.streams.stream import Stream
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .crash_stories import CrashStory, crash_everywhere
from .rig import Rig
from .support import Bench, Client

COUNT = 14
ARGUMENTS = {"x-leveret-consumer": "c", "x-stream-offset": "first"}


def publish(client: Client, number: int) -> None:
    headers = {"x-leveret-publisher": "p", "x-leveret-sequence": number}
    client.publish("s", b"%d" % number, headers=headers)


def consume(bench: Bench) -> Client:
    client = bench.connect()
    client.send(1, grammar.BASIC_QOS, prefetch_count=COUNT)
    client.send(1, grammar.BASIC_CONSUME, queue="s", arguments=ARGUMENTS)
    return client


class Story(CrashStory):
    """A publisher repeats messages and a named consumer acknowledges them."""

    def __init__(self, crash_at: int) -> None:
        self.confirmed = 0  # number of confirmed messages
        self.acknowledged = 0  # the last tag that the consumer acknowledged
        self.stored = 0  # acknowledgements that must be on disk, since a later publish was confirmed
        self.files = 0  # number of the newest journal file
        super().__init__(crash_at)

    def tell(self) -> None:
        rig = Rig(self.disk)
        client = rig.bench.connect()
        client.send(1, grammar.CONFIRM_SELECT)
        client.send(1, grammar.QUEUE_DECLARE, queue="s", durable=True, arguments={"x-queue-type": "stream"})
        rig.write()
        reader = consume(rig.bench)
        rig.write()
        client.frames()
        tag = 0
        for number in range(COUNT):
            for each in (number, number, max(0, number - 2)):  # the publisher repeats unconfirmed messages
                publish(client, each)
            acknowledged = self.acknowledged
            rig.write()
            rig.bench.broker.end_turn(rig.bench.now_us)
            if any(method.spec is grammar.BASIC_ACK for method in client.methods()):
                self.confirmed, self.stored = number + 1, acknowledged
            tag += len(reader.bodies())
            if number % 3 and tag > self.acknowledged:
                self.acknowledged += 1
                reader.send(1, grammar.BASIC_ACK, delivery_tag=self.acknowledged)
        self.files = rig.journal.current


def check(story: Story, disk: MemoryDisk) -> None:
    """No confirmed message is missing, repetitions add none, the consumer resumes where it acknowledged or earlier."""
    bench = Rig(disk).bench
    stream = bench.broker.vhosts["/"].queues.get("s")
    if stream is None:
        assert story.confirmed == 0
        return
    assert isinstance(stream, Stream)
    there = int(stream.committed)
    assert there >= story.confirmed
    mark = stream.offsets.get("c")
    offset = 0 if mark is None else int(mark.value)
    assert story.stored <= offset <= story.acknowledged
    client = bench.connect()
    for number in range(COUNT):
        publish(client, number)
    bench.sync()
    reader = consume(bench)
    bench.sync()
    assert reader.bodies() == [b"%d" % number for number in range(offset, COUNT)]


def test_the_story_has_several_files() -> None:
    story = Story(-1)
    assert story.is_over
    assert story.files > 3
    assert story.confirmed == COUNT


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_every_operation(part: int) -> None:
    assert crash_everywhere(Story, check, part, 4).operations.total() > 40
