"""Unacknowledged deliveries of a channel, single or in message batches, against a dictionary by tag."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.queues.batch_delivery import BatchDelivery
from leveret.broker.queues.consumer import Consumer
from leveret.session.unacked import Delivery, Unacked

from .support import Bench

COUNTS = st.integers(1, 40)
BACK = st.integers(0, 60)
Row = tuple[bytes, int, int, bool]


def row(delivery: Delivery) -> Row:
    """Return the comparable attributes of a delivery."""
    assert isinstance(delivery, Entry)
    return delivery.content, int(delivery.id), int(delivery.position), delivery.consumer is not None


class UnackedMachine(RuleBasedStateMachine):
    """All messages differ, so that a wrong tag is detected."""

    def __init__(self) -> None:
        super().__init__()
        bench = Bench()
        client = bench.connect()
        client.queue("q")
        queue = bench.broker.vhosts["/"].queues["q"]
        channel = client.peer.channels[1]
        self.consumer = Consumer(client.peer, channel, queue, "c", False, 0)
        self.message_list = queue.message_list
        self.unacked = Unacked()
        self.model: dict[int, Row] = {}
        self.held: list[tuple[int, Delivery]] = []
        self.tag = 1
        self.made = 0

    def content(self, octets: int) -> bytes:
        self.made += 1
        return b"%08d" % self.made + bytes(octets - 8)

    @rule()
    def deliver(self) -> None:
        entry = Entry(self.message_list, self.content(8), b"\0\1q", self.made, 0, self.made)
        entry.consumer = self.consumer
        self.unacked.add(self.tag, entry)
        self.model[self.tag] = row(entry)
        self.tag += 1

    @rule(count=COUNTS, taken=st.integers(0, 5), octets=st.sampled_from([8, 3000]), is_kept=st.booleans())
    def deliver_batch(self, count: int, taken: int, octets: int, is_kept: bool) -> None:
        """Deliver the middle of a message batch."""
        first = self.made + 1
        data = b"".join(self.content(octets) for _ in range(taken + count + 2))
        id = first if is_kept else 0
        run = MessageBatch(
            self.message_list, BatchBuffer(data, octets, octets, taken + count + 2, b"\0\1q"), id, 0, first
        )
        self.unacked.add_batch(self.tag, BatchDelivery(run, taken, count, self.consumer, self.tag), count)
        for index in range(taken, taken + count):
            content = data[index * octets : (index + 1) * octets]
            self.model[self.tag] = (content, id and id + index, first + index, True)
            self.tag += 1

    @rule(count=st.integers(1, 5))
    def deliver_to_others(self, count: int) -> None:
        """Deliveries without acknowledgement use tags, too."""
        self.tag += count

    @rule(back=BACK)
    def take(self, back: int) -> None:
        tag = self.tag - back
        found = self.unacked.take(tag)
        assert (None if found is None else row(found.single(tag))) == self.model.pop(tag, None)

    @rule(first=BACK, every=st.integers(1, 3))
    def take_many(self, first: int, every: int) -> None:
        for tag in range(max(1, self.tag - first), self.tag, every):
            found = self.unacked.take(tag)
            assert (None if found is None else row(found.single(tag))) == self.model.pop(tag, None)

    @rule(back=BACK)
    def take_next_until(self, back: int) -> None:
        until = max(0, self.tag - back)
        taken: dict[int, Row] = {}
        found, first, count = self.unacked.take_next(until)
        while found is not None:
            for tag in range(first, first + count):
                taken[tag] = row(found.single(tag))
                if isinstance(found, BatchDelivery):
                    assert found.id(tag) == taken[tag][1]
            found, first, count = self.unacked.take_next(until)
        self.unacked.compact()
        assert taken == self._taken(until)

    @rule(back=BACK, most=st.integers(1, 20))
    def take_some(self, back: int, most: int) -> None:
        until = max(0, self.tag - back)
        expected = [tag for tag in self.model if until == 0 or tag <= until][:most]
        taken = self.unacked.take_some(until, most)
        assert [row(each) for each in taken] == [self.model.pop(tag) for tag in expected]

    @rule(back=BACK, multiple=st.booleans())
    def hold(self, back: int, multiple: bool) -> None:
        """Hold deliveries as a transaction does, which has checked that the tag exists."""
        tag = max(1, self.tag - back)
        if self.unacked.has(tag):
            held = self.unacked.hold(tag, multiple)
            expected = self._taken(tag) if multiple else {tag: self.model.pop(tag)}
            assert {each: row(delivery) for each, delivery in held} == expected
            self.held += held

    @rule()
    def restore(self) -> None:
        """Restore them as a rollback does."""
        self.model |= {tag: row(delivery) for tag, delivery in self.held}
        self.model = dict(sorted(self.model.items()))
        self.unacked.restore(self.held)
        self.held = []

    @rule()
    def commit(self) -> None:
        self.unacked.count -= len(self.held)
        self.held = []

    def _taken(self, until: int) -> dict[int, Row]:
        taken = {tag: each for tag, each in self.model.items() if until == 0 or tag <= until}
        for tag in taken:
            del self.model[tag]
        return taken

    @invariant()
    def is_the_same(self) -> None:
        assert self.unacked.count == len(self.model) + len(self.held)
        assert [(tag, row(each)) for tag, each in self.unacked.tagged(0)] == list(self.model.items())
        assert len(self.unacked.tagged(3)) == min(3, len(self.model))
        assert self.unacked.first_tag() == next(iter(self.model), 0)
        assert [tag for tag in range(self.tag + 1) if self.unacked.has(tag)] == list(self.model)


UnackedMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestUnacked = UnackedMachine.TestCase


@pytest.mark.parametrize("octets", [16, 4096])
def test_the_last_of_a_long_stretch_do_not_keep_all_of_it(octets: int) -> None:
    machine = UnackedMachine()
    machine.deliver_batch(40, 0, octets, True)
    for tag in range(1, 36):
        machine.unacked.take(tag)
    kept = [delivery for delivery in machine.unacked._entries if delivery is not None]
    assert [isinstance(delivery, Entry) for delivery in kept[-5:]] == [octets > 16] * 5
    for tag in range(1, 36):
        del machine.model[tag]
    machine.is_the_same()
