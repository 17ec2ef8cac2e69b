"""When collected messages become a micro-batch: when it is full, or would not be full soon."""

import time

import pytest

from leveret.client import Delivery
from leveret.client.protocol.delivering import RawDeliveries
from leveret.spark.queues.subscription import FILL_S, GAP_S, Subscription

from .support import received

PERIOD_S = 0.005


def message() -> Delivery:
    return Delivery(b"x", b"", "", "q", 1, False, "t")


class Trickle(Subscription):
    """A queue into which a message comes every five milliseconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def _take(self, rows: int, octets: int, wait_s: float) -> tuple[RawDeliveries, int]:
        self.now_s += PERIOD_S
        return received([message()]), octets - 1


class Pause(Subscription):
    """A queue that has delivered everything in flight, and reports how many more messages it has."""

    def __init__(self, ready: int) -> None:
        self.ready = ready
        self.coming = [message()]
        self.waits_s: list[float] = []

    def _take(self, rows: int, octets: int, wait_s: float) -> tuple[RawDeliveries, int]:
        self.waits_s.append(wait_s)
        found, self.coming = self.coming, []
        return received(found), octets - len(found)

    def count_ready(self) -> int:
        return self.ready


@pytest.mark.parametrize(("rows", "least", "most"), [(10_000, 1, 5), (round(FILL_S / PERIOD_S / 2), 50, 50)])
def test_a_trickle_waits_for_no_more_than_can_come_soon(
    monkeypatch: pytest.MonkeyPatch, rows: int, least: int, most: int
) -> None:
    queue = Trickle()
    monkeypatch.setattr(time, "monotonic", lambda: queue.now_s)
    assert least <= len(queue.collect(rows, 1 << 20, 0.05)) <= most


def test_a_queue_that_has_no_more_is_not_waited_for() -> None:
    queue = Pause(0)
    assert len(queue.collect(10, 1 << 20, 0.05)) == 1
    assert queue.waits_s == [0.05, 0.0, 0.0]


def test_a_queue_that_has_more_is_waited_for() -> None:
    queue = Pause(7)
    assert len(queue.collect(10, 1 << 20, 0.05)) == 1
    assert queue.waits_s == [0.05, 0.0, GAP_S]
