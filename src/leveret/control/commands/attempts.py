"""Attempts to log in, counted since the start (RabbitMQ's /api/auth/attempts)."""

from __future__ import annotations

from leveret.control.command import Command, Query
from leveret.control.node import Node


class ListAuthAttempts(Query):
    """How many attempts have succeeded and failed, by protocol.

    by_source: by address and user, which RabbitMQ counts only where it is told to; here the log says so.
    """

    by_source: bool = False

    def run(self, node: Node) -> object:
        attempts = node.broker.login_throttle
        if self.by_source:
            return []
        found = []
        for protocol in sorted({*attempts.succeeded, *attempts.failed}, reverse=True):
            right, wrong = attempts.succeeded.get(protocol, 0), attempts.failed.get(protocol, 0)
            counts = {"auth_attempts": right + wrong, "auth_attempts_failed": wrong, "auth_attempts_succeeded": right}
            found.append({"protocol": protocol, **counts})
        return found


class ResetAuthAttempts(Command):
    """Count from zero."""

    def run(self, node: Node) -> object:
        node.broker.login_throttle.reset()
        return None
