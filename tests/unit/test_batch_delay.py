"""When a batch goes to the disk: after the loop's turn if a client waits for it, and soon otherwise."""

from __future__ import annotations

import asyncio

import pytest

from leveret.net.disk.batch_delay import BatchDelay
from leveret.net.disk.commit import BATCH_DELAY_OCTETS_MAX, BATCH_DELAY_US
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .rig import Rig
from .support import Client


@pytest.fixture
def rig() -> Rig:
    return Rig(MemoryDisk(), file_size=1 << 24)


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.bench.connect()
    client.queue("q", durable=True)
    rig.write()
    return client


def test_what_nobody_waits_for_may_linger(rig: Rig, client: Client) -> None:
    client.publish("q", delivery_mode=2)
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    assert rig.bench.broker.log.size() > 0
    assert rig.committer.may_delay()


def test_nobody_waits_for_a_confirm(rig: Rig, client: Client) -> None:
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("q", delivery_mode=2)
    assert not rig.committer.may_delay()
    rig.write()
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    assert rig.committer.may_delay()


def test_nobody_waits_for_an_answer(rig: Rig, client: Client) -> None:
    client.publish("q", delivery_mode=2)
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    assert not rig.committer.may_delay()


def test_a_long_batch_does_not_linger(rig: Rig, client: Client) -> None:
    client.publish("q", bytes(BATCH_DELAY_OCTETS_MAX), delivery_mode=2)
    assert not rig.committer.may_delay()


def test_the_last_batch_of_an_orderly_stop_does_not_linger(rig: Rig, client: Client) -> None:
    rig.bench.broker.stop()
    assert not rig.committer.may_delay()


class Loop(asyncio.SelectorEventLoop):
    """A loop whose timers are run by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[float, object]] = []

    def call_later(self, delay: float, callback: object, *args: object, context: object = None) -> None:  # type: ignore[override]
        self.calls.append((delay, callback))


def test_it_is_submitted_in_time_and_once(rig: Rig, client: Client) -> None:
    submitted: list[int] = []
    loop = Loop()
    batch_delay = BatchDelay(loop, rig.committer, lambda: submitted.append(rig.bench.broker.log.batch))
    client.publish("q", delivery_mode=2)
    batch_delay.end_turn(False)
    batch_delay.end_turn(False)
    ((delay, ring),) = loop.calls
    assert (delay, submitted) == (BATCH_DELAY_US / 1e6, [])
    ring()  # type: ignore[operator]
    assert len(submitted) == 1
    batch_delay.end_turn(False)
    assert len(loop.calls) == 2
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    batch_delay.end_turn(False)
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    batch_delay.end_turn(False)
    assert len(submitted) == 1
    loop.run_until_complete(asyncio.sleep(0))
    assert len(submitted) == 2
    rig.committer.submit()
    batch_delay.end_turn(False)  # while a batch is being written, its end submits the next
    loop.run_until_complete(asyncio.sleep(0))
    assert len(submitted) == 2
    loop.close()


def test_an_orderly_stop_waits_for_nothing(rig: Rig, client: Client) -> None:
    submitted: list[int] = []
    loop = Loop()
    client.publish("q", delivery_mode=2)
    BatchDelay(loop, rig.committer, lambda: submitted.append(1)).end_turn(True)
    assert (submitted, loop.calls) == ([1], [])
    loop.close()


def test_what_nobody_else_can_add_to_goes_at_once(rig: Rig, client: Client) -> None:
    submitted: list[int] = []
    loop = Loop()
    batch_delay = BatchDelay(loop, rig.committer, lambda: submitted.append(1))
    client.publish("q", delivery_mode=2)
    batch_delay.end_turn(False, is_alone=True)
    assert (submitted, len(loop.calls)) == ([], 1)  # no client waits for it, either
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    batch_delay.end_turn(False, is_alone=True)
    assert submitted == [1]
    rig.committer.submit()
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    batch_delay.end_turn(False, is_alone=True)
    assert submitted == [1]
    loop.close()
