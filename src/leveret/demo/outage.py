"""An outage during traffic: its begin, its end, and when the delayed messages have arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Outage:
    """A link that is cut, or a broker that is killed.

    Attributes:
        airport: the affected airport.
        begun, ended: descriptions of its begin and end (``link cut``, ``link restored``).
        share: it begins when this share of the airport's flights, 0 to 1, is confirmed there.
        lasts_s: its duration.
        begin, end: called to cause and to repair it.
        began_s, ended_s, caught_up_s: times of these events by the caller's clock; None until then.
        waiting: messages confirmed at the airport and not yet at hq when it ended.
    """

    airport: str
    begun: str
    ended: str
    share: float
    lasts_s: float
    begin: Callable[[], None]
    end: Callable[[], None]
    began_s: float | None = None
    ended_s: float | None = None
    caught_up_s: float | None = None
    waiting: int = 0
    _goal: int = 0

    @property
    def is_on(self) -> bool:
        """Whether it has begun and not ended."""
        return self.began_s is not None and self.ended_s is None

    def step(self, now_s: Callable[[], float], confirmed: int, flights: int, crossed: int, is_up: bool) -> str:
        """Begin or end the outage if that is due. Return a message for the display, or ``""``.

        Args:
            now_s: the clock.
            confirmed: flights that are confirmed at the airport.
            flights: all flights of the airport.
            crossed: messages from there that have arrived at hq.
            is_up: whether the link runs.
        """
        if self.began_s is None:
            if confirmed < int(self.share * flights):
                return ""
            self.begin()
            self.began_s = now_s()
            return f"{self.airport}: {self.begun}, {confirmed:,} of {flights:,} flights confirmed there"
        if self.ended_s is None:
            if now_s() < self.began_s + self.lasts_s:
                return ""
            self._goal, self.waiting = confirmed, max(0, confirmed - crossed)
            self.end()
            self.ended_s = now_s()
            return f"{self.airport}: {self.ended}, {self.waiting:,} messages are waiting"
        if self.caught_up_s is None and is_up and crossed >= self._goal:
            self.caught_up_s = now_s()
            return f"{self.airport}: caught up {self.caught_up_s - self.ended_s:.1f} s later"
        return ""

    def story(self) -> str:
        """Describe the outage after its end."""
        if self.began_s is None or self.ended_s is None:
            return f"{self.airport}: nothing happened"
        text = f"{self.airport}: {self.begun} at {self.began_s:.1f} s, {self.ended} at {self.ended_s:.1f} s"
        text += f" with {self.waiting:,} messages waiting"
        return text + (f", caught up after {self.caught_up_s - self.ended_s:.1f} s" if self.caught_up_s else "")
