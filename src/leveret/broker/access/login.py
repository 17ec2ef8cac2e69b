"""A login that waits for its turn, or for a slow check of its password."""

from __future__ import annotations


class Login:
    """A login that waits."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password
        self.due_us = 0  # when the password may be checked, in wall-clock time; 0 = not known yet
