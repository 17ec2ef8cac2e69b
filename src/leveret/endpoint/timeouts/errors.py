"""What can be wrong with timeouts before anything is lost."""

from __future__ import annotations


class NotATimeout(ValueError):
    """A message in the timeouts queue that does not say when or where it is due; it goes to the error queue."""


class TimeoutsUnavailable(RuntimeError):
    """The database of the timeouts can not be used: a package is missing, or it does not open."""
