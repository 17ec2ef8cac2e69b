"""Counters with rates, as RabbitMQ shows them.

A reader of rates stores the values it saw with the counters (`window`), and the next reader measures from there. So
regular readers see the rates of the last five to ten seconds, unread counters cost nothing, and the first answer is 0.
"""

from __future__ import annotations

from typing import Final, Protocol

from leveret.broker.counters import FIELDS, Churn, Passage
from leveret.control.views.view import View

SAMPLE_US: Final = 5_000_000
# shorter periods are too short for a rate; older samples say nothing about the present
SPAN_US_MIN: Final = 1_000_000
SPAN_US_MAX: Final = 60_000_000

Sample = tuple[int, tuple[int, ...]]
PASSAGE: Final = ("publish_in", "publish_out")
OCTETS: Final = ("recv_oct", "send_oct")
MESSAGES: Final = ("messages", "messages_ready", "messages_unacknowledged")
CHURN: Final = (
    "connection_created", "connection_closed", "channel_created", "channel_closed", "queue_declared", "queue_created",
    "queue_deleted",
)  # fmt: skip


class Windowed(Protocol):
    """An object that keeps a window."""

    window: object


class RateWindow:
    """The last two samples of some counters."""

    def __init__(self, now_us: int, values: tuple[int, ...]) -> None:
        self._older: Sample | None = None
        self._newer: Sample = (now_us, values)
        self._rates = [0.0] * len(values)

    def rates(self, now_us: int, values: tuple[int, ...]) -> list[float]:
        """Return the rate of each value per second."""
        age_us = now_us - self._newer[0]
        if age_us > SPAN_US_MAX or age_us < 0:
            self.__init__(now_us, values)  # type: ignore[misc]
            return self._rates
        if age_us >= SAMPLE_US:
            self._older, self._newer = self._newer, (now_us, values)
        since_us, before = self._older or self._newer
        if now_us - since_us >= SPAN_US_MIN:
            span_s = (now_us - since_us) / 1e6
            self._rates = [round((new - old) / span_s, 2) for new, old in zip(values, before, strict=True)]
        return self._rates


def rates(kept_with: Windowed, now_us: int, values: tuple[int, ...]) -> list[float]:
    """Return the rates of values whose window is kept with this object."""
    window = kept_with.window
    if not isinstance(window, RateWindow):
        window = kept_with.window = RateWindow(now_us, values)
    return window.rates(now_us, values)


def with_rates(names: tuple[str, ...], values: tuple[int, ...], speeds: list[float]) -> View:
    """Return each value by name, with its rate as NAME_details."""
    view: View = {}
    for name, value, speed in zip(names, values, speeds, strict=True):
        view[name] = value
        view[f"{name}_details"] = {"rate": speed}
    return view


def stats_of(values: tuple[int, ...], speeds: list[float], has_all: bool = False) -> View:
    """Return message counts and rates from values in the order of FIELDS; with has_all, also if they are 0."""
    view: View = {}
    if has_all or any(values[:4]):
        view = with_rates(FIELDS[:4], values[:4], speeds[:4])
    if has_all or any(values[4:]):
        view |= with_rates(FIELDS[4:], values[4:], speeds[4:])
        view["deliver_get"] = sum(values[4:8])
        view["deliver_get_details"] = {"rate": round(sum(speeds[4:8]), 2)}
    return view


def passage_stats(passage: Passage, now_us: int) -> View:
    """Return counts and rates of an exchange's messages; empty if there were none."""
    values = passage.values()
    if not any(values):
        return {}
    return with_rates(PASSAGE, values, rates(passage, now_us, values))


def churn_rates(churn: Churn, now_us: int) -> View:
    """Return counts and rates of created and closed objects."""
    values = churn.values()
    return with_rates(CHURN, values, rates(churn, now_us, values))
