"""When a run of messages is a micro-batch: when it is full, or would not be soon."""

import time

import pytest

from leveret.client import Delivery
from leveret.spark.queues.subscription import FILL_S, Subscription

PERIOD_S = 0.005


class Trickle(Subscription):
    """A queue into which a message comes every five milliseconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def _take(self, rows: int, octets: int, wait_s: float) -> tuple[list[Delivery], int]:
        self.now_s += PERIOD_S
        return [Delivery(b"x", b"", "", "q", 1, False, "t")], octets - 1


@pytest.mark.parametrize(("rows", "least", "most"), [(10_000, 1, 5), (round(FILL_S / PERIOD_S / 2), 50, 50)])
def test_a_trickle_waits_for_no_more_than_can_come_soon(
    monkeypatch: pytest.MonkeyPatch, rows: int, least: int, most: int
) -> None:
    queue = Trickle()
    monkeypatch.setattr(time, "monotonic", lambda: queue.now_s)
    assert least <= len(queue.collect(rows, 1 << 20, 0.05)) <= most
