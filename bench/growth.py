"""The measurements behind each curve: the cost of one operation while there is more and more of something.

A measurement is a generator: it takes an empty broker and ascending sizes, and yields a Sample for each figure. Costs
are processor time of the broker, all its threads; the client's does not count.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from leveret.wire import grammar
from leveret.wire.method import method_frame
from line import NUMBER, PLACE, Confirms, Line, barrier, content, delivery_octets, numbered, publish, run
from usage import Usage

COST = "processor time (µs)"
MEMORY = "memory of each (octets)"
IDLE = "processor time of an idle second (ms)"
IDLE_S = 2
WINDOW = 1000
"""The most unanswered methods, and the messages of a round."""
MESSAGES = 20_000
CONSUMERS_EACH = 5000
"""The most consumers of a connection."""
DURABLE = 10_000
"""Messages of 16 KiB, so that the journal begins a new file at least once."""
MANY = 10_000
"""Fewer objects fit into memory that earlier ones have freed, so their memory cannot be measured from outside."""
SMALL = (content(bytes(16)), content(bytes(17)))
"""Messages that differ in size, so that a broker cannot batch them as identical."""
TAG = "c" + PLACE
Sizes = Sequence[int]


class Sample(NamedTuple):
    series: str
    x: float
    y: float
    panel: str = COST  # the label of the y axis


class Place:
    """A fresh broker, connections to it, and its resource usage."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.usage = Usage(pid)
        self.line = Line(url)
        self.lines = [self.line]
        self.begun_octets = self.usage.memory_octets()  # before the measurement

    def more(self, count: int = 1) -> list[Line]:
        """Open new connections."""
        made = [Line(self.url) for _ in range(count)]
        self.lines += made
        return made

    def hang_up(self, line: Line) -> None:
        line.close()
        self.lines.remove(line)

    def close(self) -> None:
        for line in self.lines:
            line.close()

    def queue(self, name: str, durable: bool = False) -> None:
        self.line.say(method_frame(1, grammar.QUEUE_DECLARE, queue=name, durable=durable), 21 + len(name))
        run([self.line])

    def consumer(self, queue: str, prefetch: int = 0, octets: int = 0) -> Line:
        """Consume from a queue on a new connection; without acknowledgements, unless there is a prefetch limit.

        `octets` is the size of the deliveries that are already waiting, which arrive with the answer.
        """
        line = self.more()[0]
        if prefetch:
            line.call(grammar.BASIC_QOS, prefetch_count=prefetch)
        line.say(method_frame(1, grammar.BASIC_CONSUME, queue=queue, consumer_tag="c", no_ack=prefetch == 0), 14)
        line.wanted += octets
        run([line])
        return line

    def idle_ms(self) -> float:
        """Return the processor time in ms that an idle second takes."""
        time.sleep(0.2)
        return self.usage.cost_us(1, partial(time.sleep, IDLE_S)) / 1000 / IDLE_S

    def in_windows(self, frames: Sequence[bytes], answer: int) -> float:
        """Send methods, WINDOW at a time, with answers of `answer` octets each. Return the processor time of one in
        µs."""

        def work() -> None:
            for start in range(0, len(frames), WINDOW):
                window = frames[start : start + WINDOW]
                self.line.say(b"".join(window), answer * len(window))
                run([self.line])

        return self.usage.cost_us(len(frames), work)

    def flow(self, data: bytes, count: int, consumer: Line, octets: int, publisher: Line | None = None) -> float:
        """Publish messages that reach a consumer as `octets` octets in all. Return the processor time of each in µs."""
        publisher = publisher or self.line

        def work() -> None:
            publisher.publish(data, count)
            consumer.wanted += octets
            run([publisher, consumer])

        return self.usage.cost_us(count, work)


def ack(tag: int, multiple: bool = False) -> bytes:
    return method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)


def rounds(count: int) -> Iterator[int]:
    """Yield the sizes of rounds of at most WINDOW messages."""
    while count > 0:
        yield min(count, WINDOW)
        count -= WINDOW


# -- a long queue ------------------------------------------------------------------------------------------------------


def length(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Messages waiting in a queue: the cost to add one, to pass one through while they wait, and to take one."""
    for size in sizes:
        for kind, contents in (("alike", SMALL[:1] * 2), ("not alike", SMALL)):
            yield from _length(place, size, kind, contents)


def _length(place: Place, size: int, kind: str, contents: Sequence[bytes]) -> Iterator[Sample]:
    name, usage, line = "bench.length", place.usage, place.line
    place.queue(name)
    head = publish("", name)
    pair = b"".join(head + each for each in contents)
    octets = [delivery_octets("c", "", name, [len(each)]) for each in contents]

    def fill() -> None:
        for count in rounds(size):
            line.say(pair * (count // 2))
            run([line])
        barrier(line, name)
        usage.settle()  # pages have been handed to the disk

    if size:
        cost_us = usage.cost_us(size, fill)
        if size >= 10_000:
            yield Sample(f"publish, {kind}", size, cost_us)
            yield Sample(kind, size, (usage.memory_octets() - place.begun_octets) / size, MEMORY)
    consumer = place.consumer(name, WINDOW, sum(octets) * WINDOW // 2 if size else 0)

    def pass_through() -> None:
        tag = 0
        for count in rounds(MESSAGES):
            line.say(pair * (count // 2))
            if size:  # the queue delivers its oldest, one for each acknowledgement
                tag += count
                consumer.say(ack(tag, multiple=True), sum(octets) * count // 2)
                run([line, consumer])
            else:
                consumer.wanted += sum(octets) * count // 2
                run([line, consumer])
                tag += count
                consumer.say(ack(tag, multiple=True))
                run([consumer])

    yield Sample(f"publish, deliver, acknowledge, {kind}", size, usage.cost_us(MESSAGES, pass_through))
    place.hang_up(consumer)
    if size:
        _await_ready(line, name)
        cost_us = usage.cost_us(size, partial(place.consumer, name, octets=sum(octets) * size // 2))
        if size >= 10_000:
            yield Sample(f"deliver, {kind}", size, cost_us)
        place.hang_up(place.lines[-1])
    line.call(grammar.QUEUE_DELETE, queue=name)


def _await_ready(line: Line, name: str) -> None:
    """Wait until the broker has noticed that the consumer is gone; its messages are requeued then, or soon after."""
    for _ in range(3):
        time.sleep(0.05)
        barrier(line, name)


# -- many queues -------------------------------------------------------------------------------------------------------


def queues(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Queues with a consumer each: the cost to declare one, to consume from it, and of a message to one of them."""
    name, usage = "q" + PLACE, place.usage
    declare = method_frame(1, grammar.QUEUE_DECLARE, queue=name)
    consume = method_frame(1, grammar.BASIC_CONSUME, queue=name, consumer_tag=TAG, no_ack=True)
    chance = random.Random(1)
    readers: list[Line] = []
    done = 0
    for size in sizes:
        new = range(done, size)
        before = usage.memory_octets()
        cost_us = place.in_windows(numbered(declare, new), 21 + len(name))
        if len(new) >= WINDOW // 2:
            yield Sample("declare", size, cost_us)
            yield Sample("a queue", size, (usage.memory_octets() - before) / len(new), MEMORY)
        yield Sample("idle", size, place.idle_ms(), IDLE)
        while len(readers) * CONSUMERS_EACH < size:
            readers += place.more()
        for number, frame in zip(new, numbered(consume, new), strict=True):
            readers[number // CONSUMERS_EACH].say(frame, 13 + len(TAG))
        cost_us = usage.cost_us(len(new), partial(run, readers))
        if len(new) >= WINDOW // 2:
            yield Sample("consume", size, cost_us)
        done = size
        count = max(MESSAGES, size)
        for series, numbers in (
            ("message, its queue not yet known", chance.sample(range(size), size)),
            ("message, always the same queue", [0] * count),
            ("message, each queue in turn", [number % size for number in range(count)]),
            ("message, a queue by chance", chance.choices(range(size), k=count)),
        ):
            if len(numbers) >= WINDOW:
                yield Sample(series, size, _to_queues(place, readers, name, numbers))


def _to_queues(place: Place, readers: Sequence[Line], name: str, numbers: Sequence[int]) -> float:
    octets = [delivery_octets(TAG, "", name, [len(each)]) for each in SMALL]
    pairs = [numbered(publish("", name) + each, numbers) for each in SMALL]

    def work() -> None:
        for start in range(0, len(numbers), WINDOW):
            window = range(start, min(start + WINDOW, len(numbers)))
            for at in window:
                readers[numbers[at] // CONSUMERS_EACH].wanted += octets[at % 2]
            place.line.say(b"".join(pairs[at % 2][at] for at in window))
            run([place.line, *readers])

    return place.usage.cost_us(len(numbers), work)


# -- many bindings -----------------------------------------------------------------------------------------------------

PATTERNS = {
    "direct": (f"k.{PLACE}",),
    "topic": (f"a.{PLACE}.*", f"b.*.{PLACE}", f"c.{PLACE}.#"),
}
KEYS = {
    "direct": ("k.{0}",),
    "topic": ("a.{0}.{1}", "b.{1}.{0}", "c.{0}.{1}.{1}"),
}


def direct(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Bindings of a direct exchange, each with a distinct key."""
    return _bindings(place, sizes, "direct")


def topic(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Bindings of a topic exchange, each with a wildcard and a distinct word."""
    return _bindings(place, sizes, "topic")


def _bindings(place: Place, sizes: Sizes, kind: str) -> Iterator[Sample]:
    name, usage, chance = "bench." + kind, place.usage, random.Random(1)
    place.line.call(grammar.EXCHANGE_DECLARE, exchange=name, type=kind)
    place.queue(name)
    consumer = place.consumer(name)
    done, unseen = 0, 0
    for size in sizes:
        new = range(done, size)
        before = usage.memory_octets()
        bind_us = place.in_windows(_of_bindings(grammar.QUEUE_BIND, kind, new), 12)
        yield Sample("bind", size, bind_us)
        if size >= MANY:
            yield Sample("a binding", size, (usage.memory_octets() - before) / len(new), MEMORY)
        done = size
        count = min(MESSAGES, size)
        keys = [_key(kind, number, unseen + number % 1000) for number in chance.sample(range(size), count)]
        unseen += 1000
        yield Sample("message, key never seen", size, _through(place, consumer, name, keys))
        often = keys[:1000]
        _through(place, consumer, name, often)
        yield Sample("message, one of 1,000 keys again", size, _through(place, consumer, name, often * 20))
        mixed = chance.sample(range(size), 500)
        yield Sample("bind, message, unbind by turns", size, _mixed(place, consumer, kind, mixed))
        some = chance.sample(range(size), min(2000, size))
        yield Sample("unbind", size, place.in_windows(_of_bindings(grammar.QUEUE_UNBIND, kind, some), 12))
        place.in_windows(_of_bindings(grammar.QUEUE_BIND, kind, some), 12)
    if done:

        def drop() -> None:
            place.line.call(grammar.QUEUE_DELETE, queue=name)
            usage.settle()  # stale bindings are removed in steps

        drop_us = usage.cost_us(done, drop)
        yield Sample("delete the queue, each binding", done, drop_us)


def durable(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Durable bindings beside a durable queue: each new file of the journal begins with them."""
    name, key, usage = "bench.durable", f"k.{PLACE}", place.usage
    place.line.call(grammar.EXCHANGE_DECLARE, exchange=name, type="direct", durable=True)
    place.queue(name, durable=True)
    publisher = place.more()[0]
    publisher.call(grammar.CONFIRM_SELECT)
    publisher.confirms = Confirms()
    consumer = place.consumer(name, prefetch=WINDOW)
    bind = method_frame(1, grammar.QUEUE_BIND, queue=name, exchange=name, routing_key=key)
    one = content(bytes(16384), persistent=True)
    first = "k." + NUMBER % 0
    octets = delivery_octets("c", name, first, [len(one)])
    done, tag = 0, 0
    for size in sizes:
        new = range(done, size)
        before = usage.memory_octets()
        yield Sample("bind", size, place.in_windows(numbered(bind, new), 12))
        if size >= MANY:
            yield Sample("a binding", size, (usage.memory_octets() - before) / len(new), MEMORY)
        done = size
        cost_us = 0.0
        for _ in range(0, DURABLE, 100):
            data = (publish(name, first) + one) * 100
            cost_us += place.flow(data, 100, consumer, octets * 100, publisher) / (DURABLE // 100)
            tag += 100
            consumer.say(ack(tag, multiple=True))
            run([consumer])
        yield Sample("message of 16 KiB, confirmed", size, cost_us)


def _of_bindings(spec: grammar.MethodSpec, kind: str, numbers: Iterable[int]) -> list[bytes]:
    """Return a method for each of these bindings."""
    name, patterns = "bench." + kind, PATTERNS[kind]
    shapes = [method_frame(1, spec, queue=name, exchange=name, routing_key=pattern) for pattern in patterns]
    parts = [shape.split(PLACE.encode()) for shape in shapes]
    return [(b"%07d" % number).join(parts[number % len(parts)]) for number in numbers]


def _key(kind: str, number: int, other: int) -> str:
    """Return a key that only this number's binding matches."""
    shapes = KEYS[kind]
    return shapes[number % len(shapes)].format(NUMBER % number, NUMBER % other)


def _through(place: Place, consumer: Line, exchange: str, keys: Sequence[str]) -> float:
    frames, octets = [], 0
    for at, key in enumerate(keys):
        small = SMALL[at % 2]
        frames.append(publish(exchange, key) + small)
        octets += delivery_octets("c", exchange, key, [len(small)])
    return place.flow(b"".join(frames), len(keys), consumer, octets)


def _mixed(place: Place, consumer: Line, kind: str, numbers: Sequence[int]) -> float:
    """Bind, publish and unbind alternately, so that a cache of routes does not help."""
    name = "bench." + kind
    unbinds, binds = (_of_bindings(spec, kind, numbers) for spec in (grammar.QUEUE_UNBIND, grammar.QUEUE_BIND))
    data, octets = [], 0
    for number, unbind, bind in zip(numbers, unbinds, binds, strict=True):
        key = _key(kind, number, 0)
        data.append(unbind + bind + publish(name, key) + SMALL[0])
        octets += delivery_octets("c", name, key, [len(SMALL[0])])
    place.line.wanted += 24 * len(numbers)
    return place.flow(b"".join(data), len(numbers), consumer, octets)


def headers_bindings(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Bindings of a headers exchange: each matches another value of one header."""
    name, usage = "bench.headers", place.usage
    place.line.call(grammar.EXCHANGE_DECLARE, exchange=name, type="headers")
    place.queue(name)
    consumer = place.consumer(name)
    wanted = {"x-match": "all", "number": PLACE}
    bind, unbind = (
        method_frame(1, spec, queue=name, exchange=name, arguments=wanted)
        for spec in (grammar.QUEUE_BIND, grammar.QUEUE_UNBIND)
    )
    chance = random.Random(1)
    done = 0
    for size in sizes:
        before = usage.memory_octets()
        bind_us = place.in_windows(numbered(bind, range(done, size)), 12)
        memory = (usage.memory_octets() - before) / (size - done)
        if size >= WINDOW:
            yield Sample("bind", size, bind_us)
        if size >= MANY:
            yield Sample("a binding", size, memory, MEMORY)
        done = size
        count = max(200, min(MESSAGES, 1_000_000 // size))
        frames = [publish(name, "") + content(bytes(16), headers={"number": PLACE})]
        data = b"".join(numbered(frames[0], chance.choices(range(size), k=count)))
        one = delivery_octets("c", name, "", [len(frames[0]) - len(publish(name, ""))])
        yield Sample("message", size, place.flow(data, count, consumer, one * count))
        some = chance.sample(range(size), min(WINDOW, size))
        unbind_us = place.in_windows(numbered(unbind, some), 12)
        place.in_windows(numbered(bind, some), 12)
        if size >= WINDOW:
            yield Sample("unbind", size, unbind_us)


def fanout(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Queues bound to a fanout exchange."""
    name, queue = "bench.fanout", "f" + PLACE
    place.line.call(grammar.EXCHANGE_DECLARE, exchange=name, type="fanout")
    declare = method_frame(1, grammar.QUEUE_DECLARE, queue=queue)
    bind = method_frame(1, grammar.QUEUE_BIND, queue=queue, exchange=name)
    purge = method_frame(1, grammar.QUEUE_PURGE, queue=queue)
    message = publish(name, "")
    done = 0
    for size in sizes:
        place.in_windows(numbered(declare, range(done, size)), 21 + len(queue))
        place.in_windows(numbered(bind, range(done, size)), 12)
        done = size
        count = max(20, min(MESSAGES, 200_000 // size))
        data = b"".join(message + SMALL[at % 2] for at in range(count))

        def work(data: bytes = data, last: str = queue.replace(PLACE, NUMBER % (size - 1))) -> None:
            place.line.say(data)
            barrier(place.line, last)

        cost_us = place.usage.cost_us(count, work)
        yield Sample("message", size, cost_us)
        yield Sample("message, for each queue", size, cost_us / size)
        place.in_windows(numbered(purge, range(size)), 16)


# -- many connections and channels -------------------------------------------------------------------------------------


def connections(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Connections with a channel each: first idle beside a busy one, then all publishing occasionally."""
    name, usage = "bench.connections", place.usage
    place.queue(name)
    consumer = place.consumer(name)
    octets = [delivery_octets("c", "", name, [len(each)]) for each in SMALL]
    busy = b"".join(publish("", name) + each for each in SMALL) * (MESSAGES // 2)
    others: list[Line] = []
    for size in sizes:
        new = size - len(others)
        before = usage.memory_octets()
        cost_us = usage.cost_us(new, lambda new=new: others.extend(place.more(new)))
        yield Sample("connect, open a channel", size, cost_us)
        if size >= 1000:
            yield Sample("a connection", size, (usage.memory_octets() - before) / new, MEMORY)
        yield Sample("idle", size, place.idle_ms(), IDLE)
        cost_us = place.flow(busy, MESSAGES, consumer, sum(octets) * MESSAGES // 2)
        yield Sample("message of a busy connection", size, cost_us)
        turns = max(2, 2000 // size)

        def work(turns: int = turns) -> None:
            for _ in range(turns):
                for line in others:
                    line.say(publish("", name) + SMALL[0])
                consumer.wanted += octets[0] * len(others)
                run([*others, consumer])

        yield Sample("message, one of each connection in turn", size, usage.cost_us(turns * size, work))


def channels(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Channels of one connection, which publish in turn."""
    name, usage = "bench.channels", place.usage
    place.queue(name)
    consumer = place.consumer(name)
    octets = delivery_octets("c", "", name, [len(SMALL[0])])
    lines = dict(zip(sizes, place.more(len(sizes)), strict=True))
    for size, line in lines.items():
        before = usage.memory_octets()
        new = range(2, size + 1)  # channel 1 is open already
        line.say(b"".join(method_frame(number, grammar.CHANNEL_OPEN) for number in new), 16 * len(new))
        cost_us = usage.cost_us(size, partial(run, [line]))
        if size >= 100:
            yield Sample("open a channel", size, cost_us)
            yield Sample("a channel", size, (usage.memory_octets() - before) / size, MEMORY)
    for size, line in lines.items():
        one = publish("", name) + SMALL[0]
        each = [_on_channel(one, number) for number in range(1, size + 1)]
        turns = max(1, MESSAGES // size)
        count = turns * size
        cost_us = place.flow(b"".join(each) * turns, count, consumer, octets * count, line)
        yield Sample("message, each channel in turn", size, cost_us)


def _on_channel(frames: bytes, number: int) -> bytes:
    """Return the same frames for another channel."""
    moved, at = bytearray(frames), 0
    while at < len(moved):
        moved[at + 1 : at + 3] = number.to_bytes(2, "big")
        at += 8 + int.from_bytes(moved[at + 3 : at + 7], "big")
    return bytes(moved)


def consumers(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Consumers of one queue on one channel: without acknowledgements, or acknowledging each of 1,000 or more."""
    for size in sizes:
        yield from _consumers(place, size, 0, "acknowledged automatically")
        yield from _consumers(place, size, -(-WINDOW // size), "each acknowledged")


def _consumers(place: Place, size: int, prefetch: int, kind: str) -> Iterator[Sample]:
    name, usage, line = "bench.consumers", place.usage, place.line
    place.queue(name)
    reader = place.more()[0]
    reader.call(grammar.BASIC_QOS, prefetch_count=prefetch)
    consume = method_frame(1, grammar.BASIC_CONSUME, queue=name, consumer_tag=TAG, no_ack=prefetch == 0)

    def subscribe() -> None:
        reader.say(b"".join(numbered(consume, range(size))), (13 + len(TAG)) * size)
        run([reader])

    cost_us = usage.cost_us(size, subscribe)
    if size >= 1000 and not prefetch:
        yield Sample("consume", size, cost_us)
    octets = delivery_octets(TAG, "", name, [len(SMALL[0])])
    message = publish("", name) + SMALL[0]
    if prefetch == 0:
        cost_us = place.flow(message * MESSAGES, MESSAGES, reader, octets * MESSAGES)
    else:
        line.say(message * (MESSAGES + prefetch * size))
        reader.wanted += octets * prefetch * size
        run([line, reader])

        def work() -> None:
            for start in range(0, MESSAGES, WINDOW):
                reader.say(b"".join(ack(tag) for tag in range(start + 1, start + WINDOW + 1)), octets * WINDOW)
                run([reader])

        cost_us = usage.cost_us(MESSAGES, work)
    yield Sample(f"message, {kind}", size, cost_us)

    def leave() -> None:
        place.hang_up(reader)
        _await_ready(line, name)

    cost_us = usage.cost_us(size, leave)
    if size >= 1000:
        yield Sample(f"the connection ends, each consumer, {kind}", size, cost_us)
    line.call(grammar.QUEUE_DELETE, queue=name)


# -- large messages, many headers --------------------------------------------------------------------------------------


def body(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Message bodies of many sizes: transient ones, and persistent ones with confirms and acknowledgements."""
    for durable in (False, True):
        kind = "persistent, confirmed" if durable else "transient"
        name = "bench.body." + kind.partition(",")[0]
        place.queue(name, durable)
        publisher = place.more()[0]
        if durable:
            publisher.call(grammar.CONFIRM_SELECT)
            publisher.confirms = Confirms()
        consumer = place.consumer(name, prefetch=WINDOW if durable else 0)
        tag = 0
        for size in sizes:
            one = content(bytes(size), persistent=durable)
            other = content(bytes(size + 1), persistent=durable)
            head = publish("", name)
            count = max(8, min(MESSAGES, (96 << 20) // size)) // 2 * 2
            most = max(2, min(100, (8 << 20) // size)) // 2 * 2
            octets = delivery_octets("c", "", name, [len(one), len(other)])
            pair = head + one + head + other
            cost = 0.0
            for start in range(0, count, most):
                now = min(most, count - start)
                cost += now * place.flow(pair * (now // 2), now, consumer, octets * now // 2, publisher)
                tag += now
                if durable:
                    consumer.say(ack(tag, multiple=True))
                    run([consumer])
            yield Sample(f"message, {kind}", size, cost / count)
            yield Sample(f"{kind}", size, cost / count / (size / 1024), "processor time for 1 KiB (µs)")


def headers(place: Place, sizes: Sizes) -> Iterator[Sample]:
    """Message headers with short strings."""
    for kind in ("direct", "headers"):
        name = f"bench.of.{kind}"
        place.line.call(grammar.EXCHANGE_DECLARE, exchange=name, type=kind)
        place.queue(name)
        for number in range(10):
            wanted = {"x-match": "all", "last": NUMBER % number} if kind == "headers" else {}
            key = "" if kind == "headers" else NUMBER % number
            place.line.call(grammar.QUEUE_BIND, queue=name, exchange=name, routing_key=key, arguments=wanted)
        consumer = place.consumer(name)
        for size in sizes:
            names = {f"header-{number}": "some text" for number in range(size - 1)}
            both = {**names, "last": NUMBER % 9} if size else {}
            if kind == "headers" and not size:
                continue
            pair = [content(bytes(octets), headers=both or None) for octets in (16, 17)]
            head = publish(name, NUMBER % 9)
            octets = delivery_octets("c", name, NUMBER % 9, [len(each) for each in pair])
            count = MESSAGES // (4 if size >= 50 else 1)
            data = b"".join(head + each for each in pair) * (count // 2)
            yield Sample(f"message, {kind} exchange", size, place.flow(data, count, consumer, octets * count // 2))


Measure = Callable[[Place, Sizes], Iterator[Sample]]
