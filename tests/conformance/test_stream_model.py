"""Random scripts about one stream, against a model of ten lines: which messages each consumer gets, and no others."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from .raw import Frame, RawClient
from .streams import append, declare, offset_of

CHANNELS = (2, 3, 4)
STEPS = 60


@dataclass
class Consumer:
    """A consumer of the model: it gets messages from offset `next` on while it has `credit`.

    `open` has its unsettled delivery tags.
    """

    tag: str
    next: int
    credit: int
    open: list[int] = field(default_factory=list)

    def take(self, end: int) -> range:
        """Return the offsets that it gets now."""
        first, self.next = self.next, max(self.next, min(end, self.next + self.credit))
        self.credit -= self.next - first
        return range(first, self.next)


class Script:
    """Does the same on a broker and in the model, and compares after each step.

    There is one consumer for each channel, because deliveries to two consumers of a channel have no fixed order.
    """

    def __init__(self, client: RawClient, publisher: RawClient, stream: str, seed: int) -> None:
        self.client, self.publisher, self.stream = client, publisher, stream
        self.random = random.Random(seed)
        self.end = 0
        self.names = 0
        self.consumers: dict[int, Consumer] = {}
        self.last_tag = dict.fromkeys(CHANNELS, 0)

    def play(self) -> int:
        """Run the script, and return how many messages were delivered."""
        delivered = 0
        for _ in range(STEPS):
            self.random.choices((self.publish, self.consume, self.settle, self.cancel), (3, 3, 6, 1))[0]()
            delivered += self.compare()
        return delivered

    def publish(self) -> None:
        count = self.random.randint(1, 4)
        append(self.publisher, self.stream, *[b"%d" % (self.end + index) for index in range(count)])
        self.end += count

    def consume(self) -> None:
        free = [channel for channel in CHANNELS if channel not in self.consumers]
        if not free:
            return
        channel, prefetch = self.random.choice(free), self.random.randint(1, 7)
        number = self.random.randint(-2, self.end + 3)
        offset = self.random.choice(("first", "last", "next", None, "1h", number, number))
        begin = {"first": 0, "1h": 0, "last": max(0, self.end - 1)}.get(str(offset), self.end)
        self.client.call("basic.qos", channel, prefetch_count=prefetch)
        self.names += 1
        tag = f"c{self.names}"  # new, because RabbitMQ counts messages of an old consumer with the same tag
        arguments = {} if offset is None else {"x-stream-offset": offset}
        self.client.call("basic.consume", channel, queue=self.stream, consumer_tag=tag, arguments=arguments)
        self.consumers[channel] = Consumer(tag, max(0, offset) if isinstance(offset, int) else begin, prefetch)
        self.compare()
        self.client.quiet(channel)  # the answer shows that the consumer has started

    def settle(self) -> None:
        busy = [channel for channel, consumer in self.consumers.items() if consumer.open]
        if not busy:
            return
        channel, multiple = self.random.choice(busy), self.random.random() < 0.5
        consumer = self.consumers[channel]
        tag = self.random.choice(consumer.open)
        settled = [each for each in consumer.open if (each <= tag if multiple else each == tag)]
        self.client.send("basic.ack", channel, delivery_tag=tag, multiple=multiple)
        consumer.open = [each for each in consumer.open if each not in settled]
        consumer.credit += len(settled)

    def cancel(self) -> None:
        if not self.consumers:
            return
        channel = self.random.choice(sorted(self.consumers))
        # its messages give no credit to others, and later acknowledgements may settle them, too
        self.client.call("basic.cancel", channel, consumer_tag=self.consumers.pop(channel).tag)

    def compare(self) -> int:
        expected = {channel: list(consumer.take(self.end)) for channel, consumer in self.consumers.items()}
        found: dict[int, list[Frame]] = {channel: [] for channel in expected}
        for _ in range(sum(map(len, expected.values()))):
            got = self.client.read("basic.deliver")
            found[got.channel].append(got)
        for channel, consumer in self.consumers.items():
            assert [offset_of(each) for each in found[channel]] == expected[channel]
            assert [each.body for each in found[channel]] == [b"%d" % offset for offset in expected[channel]]
            tags = [each["delivery_tag"] for each in found[channel]]
            assert tags == [self.last_tag[channel] + 1 + index for index in range(len(tags))]
            self.last_tag[channel] += len(tags)
            consumer.open += tags
        return sum(map(len, expected.values()))


@pytest.mark.parametrize("seed", range(10))
def test_everybody_gets_what_the_model_says(raw: RawClient, other: RawClient, unique: str, seed: int) -> None:
    declare(raw, unique)
    for channel in CHANNELS[1:]:
        raw.call("channel.open", channel)
    assert Script(raw, other, unique, seed).play() > 20
    for channel in CHANNELS:
        raw.quiet(channel)
    other.call("queue.delete", queue=unique)
