"""Calls that are still to come, by name."""

from __future__ import annotations

from collections.abc import Callable

from leveret.federation.environment import Alarm, Environment


class Alarms:
    """One of each name at a time."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._alarms: dict[str, Alarm] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._alarms

    def set(self, name: str, delay_us: int, call: Callable[[], None]) -> None:
        """Call after a delay; in place of the one that had this name."""

        def ring() -> None:
            del self._alarms[name]
            call()

        self.cancel(name)
        self._alarms[name] = self._environment.later(delay_us, ring)

    def cancel(self, name: str) -> None:
        """It shall not come."""
        alarm = self._alarms.pop(name, None)
        if alarm is not None:
            alarm.cancel()

    def clear(self) -> None:
        """None shall come."""
        for name in list(self._alarms):
            self.cancel(name)
