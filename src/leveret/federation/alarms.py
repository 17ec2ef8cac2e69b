"""Timers by name."""

from __future__ import annotations

from collections.abc import Callable

from leveret.federation.environment import Environment, ScheduledCall


class LinkTimers:
    """Timers, one of each name at a time."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._alarms: dict[str, ScheduledCall] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._alarms

    def set(self, name: str, delay_us: int, call: Callable[[], None]) -> None:
        """Set a timer; it replaces one of the same name."""

        def ring() -> None:
            del self._alarms[name]
            call()

        self.cancel(name)
        self._alarms[name] = self._environment.later(delay_us, ring)

    def cancel(self, name: str) -> None:
        """Cancel the timer, if it is set."""
        alarm = self._alarms.pop(name, None)
        if alarm is not None:
            alarm.cancel()

    def clear(self) -> None:
        """Cancel all timers."""
        for name in list(self._alarms):
            self.cancel(name)
