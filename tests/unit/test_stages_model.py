"""Stages against a small model: random tasks, retries, releases, aborts, expiries, pages and crashes."""

from __future__ import annotations

import random

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .rig import FILE_SIZE, Rig
from .stages import MILLISECOND_US, STAGE, drain, queries, say
from .support import SECOND_US, Client

QUERIES = ("P", "Q")
QUEUES = ("q", "r")
EXPIRES_MS = 60_000
STEPS = 60


class Model:
    """Model of the stages and their queues."""

    def __init__(self) -> None:
        # by query, batch and attempt: (queue, body) of the messages, and when the last of them was published
        self.stages: dict[tuple[str, int, str], tuple[list[tuple[str, bytes]], int]] = {}
        self.last = dict.fromkeys(QUERIES, -1)
        self.released: list[tuple[str, bytes]] = []  # (queue, body) in order of release

    def expire(self, now_us: int) -> None:
        ended_us = now_us - EXPIRES_MS * 1000
        self.stages = {key: held for key, held in self.stages.items() if held[1] > ended_us}

    def release(self, query: str, batch: int, attempts: list[str]) -> bool:
        """Return False if the release is refused."""
        if batch <= self.last[query]:
            return True
        if any((query, batch, attempt) not in self.stages for attempt in attempts):
            return False
        for attempt in attempts:
            self.released += self.stages[query, batch, attempt][0]
        self.last[query] = batch
        self.stages = {key: held for key, held in self.stages.items() if key[0] != query or key[1] > batch}
        return True


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.model = Model()
        self.disk = MemoryDisk()
        self.attempts = 0
        self.now_us = 0
        self._open()
        for queue in QUEUES:
            self.client.send(1, grammar.QUEUE_DECLARE, queue=queue, durable=True)
            self.client.send(1, grammar.QUEUE_BIND, queue=queue, exchange="amq.fanout")
        self.settle()

    def _open(self) -> None:
        self.rig = Rig(self.disk, file_size=FILE_SIZE + 2000, octets_max=2000)
        self.bench = self.rig.bench
        self.bench.now_us = max(self.bench.now_us, self.now_us)
        self.client = self._connect()

    def _connect(self) -> Client:
        self.bench.pass_time(0)
        self.rig.write()  # so that no connection shares this sync
        client = self.bench.connect()
        client.send(1, grammar.CONFIRM_SELECT)
        return client

    def settle(self) -> None:
        self.rig.write()
        self.client.frames()

    def step(self) -> None:
        self.model.expire(self.bench.now_us)
        self.chance.choice([self.stage, self.stage, self.stage, self.release, self.release, self.abort, self.wait,
                            self.page, self.crash])()  # fmt: skip

    def stage(self) -> None:
        query = self.chance.choice(QUERIES)
        batch = max(0, self.model.last[query] + self.chance.choice([0, 1, 1, 1, 2]))
        self.attempts += 1
        attempt = f"a{self.attempts}"
        named = {"x-leveret-query": query, "x-leveret-batch": batch, "x-leveret-attempt": attempt}
        self.client.send(
            1, grammar.BASIC_CONSUME, queue=STAGE, no_ack=True, consumer_tag="s",
            arguments=named | {"x-leveret-expires-ms": EXPIRES_MS},
        )  # fmt: skip
        held: list[tuple[str, bytes]] = []
        for number in range(self.chance.randrange(8)):
            body = b"%s %d " % (attempt.encode(), number) + b"x" * self.chance.randrange(60)
            where = self.chance.choice(["q", "r", "both", "alike"])
            if where == "both":
                self.client.publish("", body, exchange="amq.fanout", delivery_mode=2)
                held += [(queue, body) for queue in QUEUES]
            elif where == "alike":
                bodies = [body + b"%d" % each for each in range(4)]
                self.client.raw(b"".join(self.client.encoded("q", each) for each in bodies))
                held += [("q", each) for each in bodies]
            else:
                self.client.publish(where, body)
                held.append((where, body))
        self.client.send(1, grammar.BASIC_CANCEL, consumer_tag="s")
        if batch > self.model.last[query]:
            self.model.stages[query, batch, attempt] = held, self.bench.now_us
        self.settle()

    def release(self) -> None:
        query = self.chance.choice(QUERIES)
        batch = max(0, self.model.last[query] + self.chance.choice([0, 1, 1, 1, 2]))
        there = [key[2] for key in self.model.stages if key[:2] == (query, batch)]
        attempts = self.chance.sample(there, self.chance.randint(0, len(there)))
        if self.chance.random() < 0.1:
            attempts.append("never made")
        say(self.client, op="release", query=query, batch=batch, attempts=attempts)
        self.rig.write()
        is_refused = any(method.name == "channel.close" for method in self.client.methods())
        assert is_refused is not self.model.release(query, batch, attempts)
        if is_refused:
            self.client = self._connect()
        if self.chance.random() < 0.5:
            self.move(self.chance.randrange(1, 4))

    def abort(self) -> None:
        query = self.chance.choice(QUERIES)
        batch = self.model.last[query] + 1
        say(self.client, op="abort", query=query, batch=batch)
        for key in [key for key in self.model.stages if key[:2] == (query, batch)]:
            del self.model.stages[key]
        self.settle()

    def wait(self) -> None:
        self.bench.pass_time(self.chance.randrange(40) * SECOND_US)
        self.settle()

    def page(self) -> None:
        self.rig.page()

    def crash(self) -> None:
        self.now_us = self.bench.now_us
        self.disk.crash(range(len(self.disk.pending)) if self.chance.random() < 0.5 else ())
        self._open()

    def move(self, turns: int) -> None:
        while queries(self.bench).releases.is_busy and turns > 0:
            self.bench.pass_time(MILLISECOND_US)
            self.settle()
            turns -= 1

    def check(self) -> None:
        self.move(1 << 20)
        self.bench.pass_time(1)
        self.model.expire(self.bench.now_us)
        found = {
            (stage.query, stage.batch, stage.attempt): int(stage.count()) for stage in queries(self.bench).stages()
        }
        assert found == {key: _count(held) for key, (held, _) in self.model.stages.items()}
        for queue in QUEUES:
            assert drain(self.client, queue) == [body for name, body in self.model.released if name == queue]
        self.settle()
        self.model.released.clear()


def _count(held: list[tuple[str, bytes]]) -> int:
    """Count a message to both queues once."""
    return len({body for _, body in held})


@pytest.mark.parametrize("part", range(4))
def test_it_is_as_the_model_says(part: int) -> None:
    for seed in range(part, 60, 4):
        world = World(seed)
        for step in range(STEPS):
            world.step()
            if step % 20 == 19:
                world.check()
        world.check()
