"""Times and durations as people write them for `leveret ctl`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from leveret.cli.ctl.exits import DATA, Failed
from leveret.cli.ctl.times import duration, duration_ms, local_time, time_ms


@pytest.fixture(autouse=True)
def berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("90", 90_000), ("1.5", 1500), ("250ms", 250), ("0.1ms", 1), ("1h30m", 5_400_000),
     ("2d 3s", 172_803_000), ("1w", 604_800_000), ("0.1", 100)],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "-1", "1y", "1h30", "nan", "inf", "1e3", "h1", "1 h", "\u0661"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Failed) as failed:
        duration_ms(text)
    assert failed.value.code == DATA


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 01:00", 0),  # local
        ("1970-01-01T00:00:00.0001+00:00", 1),
        ("2026-07-01", 1_782_856_800_000),
        ("2026-12-24 18:00:00+05:00", 1_798_117_200_000),
        ("1969-12-31T23:59:59.5Z", -500),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert time_ms(text) == ms


def test_a_time_from_now() -> None:
    before = time.time() * 1000
    assert before <= time_ms("+1h") - 3_600_000 <= time.time() * 1000 + 1


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "+", "12:00", "0001-01-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(Failed) as failed:
        time_ms(text)
    assert failed.value.code == DATA


def test_how_they_are_shown() -> None:
    assert local_time(None) == ""
    assert local_time(1_782_856_800_001) == "2026-07-01 00:00:00.001+02:00"
    assert local_time(1_798_117_200_000) == "2026-12-24 14:00:00.000+01:00"
    assert duration(93_784_001) == "1 day, 2:03:05"
    assert duration(0) == "0:00:00"
