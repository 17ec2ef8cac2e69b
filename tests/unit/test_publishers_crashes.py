"""A crash at every disk operation while a publisher attaches, publishes, and comes back: each message is there once."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .crash_stories import CrashStory, crash_everywhere
from .publishers import attach, publishers
from .rig import Rig
from .stages import drain
from .support import Client

ROUNDS = 3
FULL = {"x-max-length": 4, "x-overflow": "reject-publish"}
# what each round publishes, in one read: to a queue, to a full one, to none, or a message batch
ROUND = ("q", "full", "q", "nowhere", "batch", "full", "q")


def encoded(client: Client, round: int) -> list[bytes]:
    """Return the frames of each publish of a round."""
    found = []
    for at, where in enumerate(ROUND):
        key, count = ("q", 5) if where == "batch" else (where, 1)
        found += [
            client.encoded(key, b"%d %d %d" % (round, at, number), delivery_mode=2, mandatory=True)
            for number in range(count)
        ]
    return found


PUBLISHES = len(ROUND) + 4  # of a round


def expected(rounds: int) -> list[bytes]:
    """Return the bodies that the queue q must have after so many rounds."""
    return [
        b"%d %d %d" % (round, at, number)
        for round in range(rounds)
        for at, where in enumerate(ROUND) if where in ("q", "batch")
        for number in range(5 if where == "batch" else 1)
    ]  # fmt: skip


def declare(client: Client) -> None:
    client.send(1, grammar.CONFIRM_SELECT)
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.send(1, grammar.QUEUE_DECLARE, queue="full", durable=True, arguments=FULL)


class Story(CrashStory):
    """Publishes in rounds, each on a connection of its own that ends without a word."""

    def __init__(self, crash_at: int) -> None:
        self.epoch = 0  # the last one that the client was told
        self.sent = self.confirmed = 0  # publishing ids that were sent, and that were confirmed
        super().__init__(crash_at)

    def tell(self) -> None:
        self.rig = rig = Rig(self.disk, octets_max=1500)
        client = rig.bench.connect()
        declare(client)
        rig.write()
        for round in range(ROUNDS):
            attach(client, **({"epoch": self.epoch, "first_id": self.confirmed + 1} if self.epoch else {}))
            rig.write()
            assert client.bodies()
            self.epoch += 1
            frames = encoded(client, round)
            for part in (frames[:3], frames[3:]):
                self.sent += len(part)
                client.raw(b"".join(part))
                rig.write()
                client.frames()
                self.confirmed = self.sent
            rig.page()
            client.peer.lost(rig.bench.now_us)
            client = rig.bench.connect()


def check(story: Story, disk: MemoryDisk) -> None:
    """The client comes back, and publishes what is above the last id, and the rest."""
    rig = Rig(disk, octets_max=1500)
    client = rig.bench.connect()
    declare(client)
    attach(client, **({"epoch": story.epoch, "first_id": story.confirmed + 1} if story.epoch else {}))
    rig.write()
    client.frames()
    reference = publishers(rig.bench).by_name["P"]
    assert reference.holder is not None
    last_id = int(reference.last_id)
    assert story.confirmed <= last_id <= story.sent
    refused = [id for id in reference.refused_ids() if (id - 1) % PUBLISHES == 3]
    assert refused == [id for id in range(1, last_id + 1) if (id - 1) % PUBLISHES == 3]  # those without a queue
    frames = [frame for round in range(ROUNDS) for frame in encoded(client, round)]
    client.raw(b"".join(frames[last_id:]))
    rig.write()
    assert reference.last_id == len(frames)
    full = [id for id in reference.refused_ids() if (id - 1) % PUBLISHES in (1, 9)]
    drained = drain(client, "full")
    assert len(drained) + len(full) == 2 * ROUNDS
    assert drain(client, "q") == expected(ROUNDS)


def test_the_story_has_pages_and_several_files() -> None:
    story = Story(-1)
    assert story.is_over
    assert story.operations["page"] > 0
    assert story.rig.journal.current > 3
    check(story, story.disk)


@pytest.mark.timeout(600)
def test_a_crash_at_any_disk_operation_loses_nothing_and_stores_nothing_twice() -> None:
    assert crash_everywhere(Story, check, 0, 1).operations.total() > 50
