"""Random consumers of one queue get exactly the messages that a simple model predicts, and nothing gets stuck."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from leveret.wire import grammar
from leveret.wire.method import decode_method

from .support import Bench, Client


@dataclass(eq=False)
class Side:
    """A channel in the model. `held`: (delivery tag, body, consumer) in the order of delivery."""

    client: Client
    number: int
    limit: int = 0
    default: int = 0
    next_tag: int = 1
    held: list[tuple[int, int, Taker | None]] = field(default_factory=list)

    def is_full(self) -> bool:
        return 0 < self.limit <= sum(taker is not None for _, _, taker in self.held)


@dataclass(eq=False)
class Taker:
    """A consumer in the model."""

    side: Side
    tag: str
    priority: int
    limit: int
    no_ack: bool

    def can_take(self) -> bool:
        held = sum(taker is self for _, _, taker in self.side.held)
        return not self.side.is_full() and (self.no_ack or not 0 < self.limit <= held)


class Model(RuleBasedStateMachine):
    """A model of one queue's consumers, run beside the broker."""

    is_single = False

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.sides: list[Side] = []
        self.all: list[Taker] = []  # in the order in which they came
        # consumers that were able to take a message when last seen, in the order of their turns
        self.line: list[Taker] = []
        self.aside: list[Taker] = []  # the other ones
        self.active: Taker | None = None
        self.ready: list[int] = []  # bodies that wait; they are also positions in the queue
        self.seen: set[int] = set()
        self.published = 0
        self.consumed = 0

    @initialize()
    def begin(self) -> None:
        for _ in range(2):
            client = self.bench.connect()
            client.call(2, grammar.CHANNEL_OPEN)
            self.sides += [Side(client, 1), Side(client, 2)]
        self.publisher = self.bench.connect()
        arguments = {"x-single-active-consumer": True} if self.is_single else {}
        self.publisher.queue("q", arguments=arguments)

    # -- the model -----------------------------------------------------------------------------------------------------

    def next(self) -> Taker | None:
        if self.is_single:
            return self.active if self.active is not None and self.active.can_take() else None
        for priority in sorted({taker.priority for taker in self.line}, reverse=True):
            for taker in [each for each in self.line if each.priority == priority]:
                self.line.remove(taker)
                if taker.can_take():
                    self.line.append(taker)
                    return taker
                self.aside.append(taker)
        return None

    def back(self, takers: list[Taker]) -> None:
        """Put the ones that can take a message again at the end of the line."""
        for taker in takers:
            if taker in self.aside and taker.can_take():
                self.aside.remove(taker)
                self.line.append(taker)

    def all_back(self, side: Side) -> None:
        self.back([taker for taker in self.aside if taker.side is side])

    def leave(self, taker: Taker) -> None:
        self.all.remove(taker)
        for where in (self.line, self.aside):
            if taker in where:
                where.remove(taker)
        if taker is self.active:
            highest = max((each.priority for each in self.all), default=0)
            self.active = next((each for each in self.all if each.priority == highest), None)

    def settle(self, entries: list[tuple[int, int, Taker | None]], side: Side, requeue: bool) -> None:
        for entry in entries:
            side.held.remove(entry)
        if requeue:
            self.ready = sorted([*self.ready, *[body for _, body, _ in entries]])
        if side.limit:
            self.all_back(side)
        stirred = {taker.tag: taker for _, _, taker in entries if taker in self.all}
        self.back([stirred[tag] for tag in sorted(stirred)])

    def check(self) -> None:
        """Serve the model's consumers, and compare with the broker's deliveries."""
        expected: dict[tuple[int, str], list[tuple[int, int, bool]]] = {}
        while self.ready and (taker := self.next()) is not None:
            side, body = taker.side, self.ready.pop(0)
            got = (side.next_tag, body, body in self.seen)
            expected.setdefault((self.sides.index(side), taker.tag), []).append(got)
            if not taker.no_ack:
                side.held.append((side.next_tag, body, taker))
                self.seen.add(body)
            side.next_tag += 1
        assert not (self.ready and any(taker.can_take() for taker in self.all) and not self.is_single)
        assert self.delivered() == expected
        count = self.publisher.call(1, grammar.QUEUE_DECLARE, queue="q", passive=True)
        assert (count.number("message_count"), count.number("consumer_count")) == (len(self.ready), len(self.all))

    def delivered(self) -> dict[tuple[int, str], list[tuple[int, int, bool]]]:
        found: dict[tuple[int, str], list[tuple[int, int, bool]]] = {}
        for at, client in ((0, self.sides[0].client), (2, self.sides[2].client)):
            frames = client.frames()
            for method, body in zip(frames, frames[2:], strict=False):
                if body.kind == 3 and (deliver := decode_method(method.payload)).spec is grammar.BASIC_DELIVER:
                    got = (deliver.number("delivery_tag"), int(body.payload), deliver.flag("redelivered"))
                    found.setdefault((at + body.channel - 1, deliver.text("consumer_tag")), []).append(got)
        return found

    # -- what clients do -----------------------------------------------------------------------------------------------

    @rule(at=st.integers(0, 3), priority=st.integers(-1, 1), no_ack=st.sampled_from([False, False, False, True]))
    def consume(self, at: int, priority: int, no_ack: bool) -> None:
        side = self.sides[at]
        self.consumed += 1
        taker = Taker(side, f"c{self.consumed}", priority, side.default, no_ack)
        given = {"queue": "q", "consumer_tag": taker.tag, "no_ack": no_ack, "arguments": {"x-priority": priority}}
        side.client.send(side.number, grammar.BASIC_CONSUME, **given)
        self.all.append(taker)
        self.line.append(taker)
        self.active = self.active or taker
        self.check()

    @rule(which=st.integers(0, 9))
    def cancel(self, which: int) -> None:
        if not self.all:
            return
        taker = self.all[which % len(self.all)]
        taker.side.client.send(taker.side.number, grammar.BASIC_CANCEL, consumer_tag=taker.tag)
        self.leave(taker)
        self.check()

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.ready.append(self.published)
            self.publisher.publish("q", b"%d" % self.published)
            self.published += 1
            self.check()

    @rule(at=st.integers(0, 3), which=st.integers(0, 9), multiple=st.booleans(), word=st.sampled_from("arq"))
    def settle_some(self, at: int, which: int, multiple: bool, word: str) -> None:
        side = self.sides[at]
        if not side.held:
            return
        index = which % len(side.held)
        tag = side.held[index][0]
        if word == "a":
            side.client.send(side.number, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)
        else:
            nack = {"delivery_tag": tag, "multiple": multiple, "requeue": word == "q"}
            side.client.send(side.number, grammar.BASIC_NACK, **nack)
        self.settle(side.held[0 if multiple else index : index + 1], side, word == "q")
        self.check()

    @rule(at=st.integers(0, 3), count=st.integers(0, 3), whole=st.booleans())
    def limit(self, at: int, count: int, whole: bool) -> None:
        side = self.sides[at]
        side.client.send(side.number, grammar.BASIC_QOS, prefetch_count=count, **{"global": whole})
        side.limit = count if whole else 0
        side.default = side.default if whole else count
        self.all_back(side)
        self.check()

    @rule(at=st.integers(0, 3))
    def get(self, at: int) -> None:
        side = self.sides[at]
        if not self.ready:
            return
        side.client.send(side.number, grammar.BASIC_GET, queue="q")
        body = self.ready.pop(0)
        self.seen.add(body)
        side.held.append((side.next_tag, body, None))
        side.next_tag += 1
        self.check()

    @rule(at=st.integers(0, 3))
    def reopen(self, at: int) -> None:
        side = self.sides[at]
        for taker in [each for each in self.all if each.side is side]:
            self.leave(taker)
        side.client.send(side.number, grammar.CHANNEL_CLOSE)
        self.ready = sorted([*self.ready, *[body for _, body, _ in side.held]])
        self.sides[at] = Side(side.client, side.number)
        side.client.send(side.number, grammar.CHANNEL_OPEN)
        self.check()


class SingleModel(Model):
    """The same with x-single-active-consumer."""

    is_single = True


TestConsumers = Model.TestCase
TestSingleActiveConsumer = SingleModel.TestCase
TestConsumers.settings = TestSingleActiveConsumer.settings = settings(max_examples=100, stateful_step_count=30)
