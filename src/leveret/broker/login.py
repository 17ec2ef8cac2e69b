"""A login that waits: for its turn, or for a password whose check takes long."""

from __future__ import annotations


class Login:
    """due_us: when the password may be looked at, in wall-clock time; 0: that is not known yet."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password
        self.due_us = 0
