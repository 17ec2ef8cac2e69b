"""When a replay's messages are due, by a simulated clock; and requests that are refused before Spark is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from leveret.pipelines import PipelineError
from leveret.pipelines.replays.replay import replay
from leveret.pipelines.replays.schedule import ReplaySchedule
from leveret.pipelines.replays.source import NumberedRows, ReplayReader, ReplaySink
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.writer import StreamSink

from ..support import sent as copied

DAY_US = 86_400_000_000


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sent(schedule: ReplaySchedule, clock: Clock, start: int, end: int, steps: list[float]) -> list[int]:
    """Return how many messages are due after each of these steps of the clock (seconds)."""
    counts = []
    for step in steps:
        clock.now_s += step
        reached = schedule.due(start, end)
        counts.append(reached - start)
        start = reached
    return counts


def test_without_a_pace_all_is_due() -> None:
    assert ReplaySchedule().due(7, 90) == 90


def test_a_rate_is_kept_to_the_message_however_often_it_is_asked() -> None:
    clock = Clock()
    schedule = ReplaySchedule(rate=10, clock=clock)
    assert sent(schedule, clock, 0, 100, [0, 0.0625, 0.0625, 0.25, 0.25, 0.25, 5, 0.125]) == [
        0, 0, 1, 2, 3, 2, 10, 1
    ]  # fmt: skip
    slow = ReplaySchedule(rate=0.25, clock=clock)
    assert sent(slow, clock, 0, 9, [0, 1, 1, 1, 1, 1]) == [0, 0, 0, 0, 1, 0]


def test_a_speed_keeps_the_spacing() -> None:
    clock = Clock()
    times = [None, DAY_US, DAY_US, DAY_US + 1_000_000, DAY_US + 9_000_000, DAY_US + 9_000_000]
    schedule = ReplaySchedule(speed=10, times=times.__getitem__, clock=clock)
    assert sent(schedule, clock, 1, 6, [0, 0.0625, 0.0625, 0.5, 0.5]) == [2, 0, 1, 0, 2]


def test_a_stall_is_no_flood_and_a_full_micro_batch_holds_up_the_clock() -> None:
    clock = Clock()
    schedule = ReplaySchedule(speed=1, times=lambda number: number * 100_000, clock=clock)
    assert sent(schedule, clock, 0, 1000, [0, 60, 1]) == [1, 10, 10]
    full = ReplaySchedule(speed=1, times=lambda number: number * 1000, clock=clock)
    clock.now_s += 1
    assert full.due(0, 5) == 1
    clock.now_s += 1
    assert full.due(1, 5) == 5  # 1,000 are due, but a micro-batch takes five
    clock.now_s += 0.0035
    assert full.due(5, 100) == 8


def test_a_replay_that_goes_on_waits_as_long_as_the_message_had_to() -> None:
    clock = Clock()
    times = [DAY_US, DAY_US + 4_000_000, DAY_US + 4_500_000]
    schedule = ReplaySchedule(speed=1, times=times.__getitem__, clock=clock)
    assert sent(schedule, clock, 1, 3, [0, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]) == [0, 0, 0, 0, 0, 1, 0, 1]


class Numbers:
    """A sequence of the given length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def test_micro_batches_are_cut_into_consecutive_tasks() -> None:
    reader = ReplayReader(Numbers(70_000), ReplaySchedule(), 50_000, 2)  # type: ignore[arg-type]
    start = reader.initialOffset()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert first == {"next": 50_000}
    last = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert last == {"next": 70_000}
    assert reader.latestOffset(last, reader.getDefaultReadLimit()) == last
    assert reader.partitions(start, first) == [NumberedRows(0, 25_000), NumberedRows(25_000, 50_000)]
    assert reader.partitions({"next": 5}, {"next": 9}) == [NumberedRows(5, 9)]


class TenthRows(Numbers):
    """Rows that are their numbers, in batches of up to ten."""

    def batches(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        for at in range(first, end, 10):
            yield pa.record_batch({"n": pa.array(range(at, min(end, at + 10)))})


def test_ranges_pass_through_spark_and_the_sink_reads_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = copied(ReplayReader(TenthRows(100), ReplaySchedule(), 50, 2))  # type: ignore[arg-type]
    ranges = [batch for each in (NumberedRows(5, 28), NumberedRows(28, 30)) for batch in reader.read(each)]
    written: list[int] = []

    def write(_sink: StreamSink, batches: Iterator[pa.RecordBatch]) -> None:
        written.extend(number for batch in batches for number in batch["n"].to_pylist())

    monkeypatch.setattr(StreamSink, "write", write)
    ReplaySink(SinkOptions.parse({"exchange": "x"}), TenthRows(100)).write(iter(ranges))  # type: ignore[arg-type]
    assert written == list(range(5, 30))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name either a lake or a stream"),
        ({"lake": "l", "stream": "s"}, "name either a lake or a stream"),
        ({"lake": "l", "starting": "0"}, "from and to are positions in a stream; for a lake use where"),
        ({"lake": "l", "rate": 1, "speed": 1}, "use either rate .messages per second. or speed"),
        ({"lake": "l", "rate": 0}, "the rate must be more than 0"),
        ({"lake": "l", "speed": float("nan")}, "the speed must be more than 0"),
        ({"lake": "l", "marker": ""}, "the marker is the name of a header"),
        ({"lake": "l", "marker": "x" * 256}, "the marker has 256 octets"),
        ({"lake": "l", "name": ""}, "a replay needs a name"),
        ({"lake": "l", "delivery": "twice"}, "delivery must be auto, exactly-once or at-least-once, not 'twice'"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        replay(None, "x", **{"name": "n", "checkpoint": "/nowhere", **given})  # type: ignore[arg-type]
