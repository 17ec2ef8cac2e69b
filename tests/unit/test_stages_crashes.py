"""A crash at every disk operation while batches are staged, paged out, released and moved to their queues."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .crash_stories import CrashStory, crash_everywhere
from .rig import Rig
from .stages import MILLISECOND_US, asked, attach, detach, drain, queries, release
from .support import Bench, Client

BATCHES = 3
QUEUES = ("q", "r")
# the messages of each attempt: to one queue, to both, or a message batch
ATTEMPTS = {"a": ("q", "both", "q", "run"), "b": ("run", "both", "r"), "dropped": ("both", "run")}


def bodies(batch: int, attempt: str, queue: str) -> list[bytes]:
    """Return the bodies that an attempt adds to a queue, in order."""
    found = []
    for number, where in enumerate(ATTEMPTS[attempt]):
        if where in (queue, "both"):
            found.append(b"%d %d" % (batch, number) + attempt.encode())
        elif where == "run" and queue == "q":
            found += [b"%d %d" % (batch, number) + attempt.encode() + b"%d" % each for each in range(5)]
    return found


def expected(batch: int, queue: str) -> list[bytes]:
    """Return the bodies that a batch adds to a queue; attempt b is released before a."""
    return bodies(batch, "b", queue) + bodies(batch, "a", queue)


def publish(client: Client, batch: int, attempt: str, name: str) -> None:
    """Stage all messages of an attempt under this name, which may be that of a retry."""
    attach(client, batch, name)
    for number, where in enumerate(ATTEMPTS[attempt]):
        body = b"%d %d" % (batch, number) + attempt.encode()
        if where == "run":
            read = [client.encoded("q", body + b"%d" % each, delivery_mode=2) for each in range(5)]
            client.raw(b"".join(read))
        elif where == "both":
            client.publish("", body, exchange="amq.fanout")
        else:
            client.publish(where, body, delivery_mode=2)
    detach(client)


def declare(client: Client) -> None:
    client.send(1, grammar.CONFIRM_SELECT)
    for queue in QUEUES:
        client.send(1, grammar.QUEUE_DECLARE, queue=queue, durable=True)
        client.send(1, grammar.QUEUE_BIND, queue=queue, exchange="amq.fanout")


def counts(bench: Bench) -> list[int]:
    found = bench.broker.vhosts["/"].queues
    return [int(found[queue].count()) for queue in QUEUES]


class Story(CrashStory):
    """Stages and releases batches."""

    def __init__(self, crash_at: int) -> None:
        # numbers of batches whose release was sent, and whose release was confirmed
        self.asked = self.released = 0
        super().__init__(crash_at)

    def tell(self) -> None:
        self.rig = rig = Rig(self.disk, octets_max=1500)
        client = rig.bench.connect()
        declare(client)
        rig.write()
        for batch in range(BATCHES):
            for attempt in ATTEMPTS:
                publish(client, batch, attempt, attempt)
                rig.page()
            assert counts(rig.bench) == [sum(len(expected(n, queue)) for n in range(batch)) for queue in QUEUES]
            self.asked = batch + 1
            release(client, batch, "b", "a")
            client.frames()
            rig.write()
            assert [method.name for method in client.methods()][-1] == "basic.ack"
            self.released = batch + 1
            while queries(rig.bench).releases.is_busy:
                rig.bench.pass_time(MILLISECOND_US)
                rig.write()
            rig.page()


def check(story: Story, disk: MemoryDisk) -> None:
    """Like Spark, a driver goes on: each message is in its queues once, in order, and no batch it did not release."""
    rig = Rig(disk, octets_max=1500)
    bench = rig.bench
    client = bench.connect()
    declare(client)
    rig.write()
    known = asked(client)
    last = known["last_batch"] if known is not None else None
    done = 0 if last is None else int(str(last)) + 1
    assert story.released <= done <= story.asked
    move(rig)
    assert counts(bench) == [sum(len(expected(batch, queue)) for batch in range(done)) for queue in QUEUES]
    for batch in range(max(0, done - 1), BATCHES):  # the last released batch may be repeated
        for attempt in ("a", "b"):
            publish(client, batch, attempt, f"again {attempt}")
        release(client, batch, "again b", "again a")
        move(rig)
    for queue in QUEUES:
        assert drain(client, queue) == [body for batch in range(BATCHES) for body in expected(batch, queue)]
    assert queries(bench).stages() == []


def move(rig: Rig) -> None:
    rig.write()
    while queries(rig.bench).releases.is_busy:
        rig.bench.pass_time(MILLISECOND_US)
        rig.write()


def test_the_story_has_pages_and_several_files() -> None:
    story = Story(-1)
    assert story.is_over
    assert story.operations["page"] > 10
    assert story.rig.journal.current > 5
    check(story, story.disk)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_disk_operation_loses_nothing_and_shows_nothing_twice_or_early(part: int) -> None:
    assert crash_everywhere(Story, check, part, 4).operations.total() > 100
