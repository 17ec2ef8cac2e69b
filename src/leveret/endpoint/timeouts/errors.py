"""The errors of the timeout manager."""

from __future__ import annotations


class NotATimeout(ValueError):
    """A message in the timeouts queue has no valid time or destination; it goes to the error queue."""


class TimeoutsUnavailable(RuntimeError):
    """The database of the timeouts cannot be used: a package is missing, or the database fails."""
