"""Login attempts, counted since the start (RabbitMQ's /api/auth/attempts)."""

from __future__ import annotations

from leveret.control.command import Command, Query
from leveret.control.node import BrokerNode


class ListAuthAttempts(Query):
    """Count successful and failed login attempts by protocol.

    by_source asks for counts by address and user; the list is always empty, as in RabbitMQ unless it is configured to
    count them. leveret writes failed attempts to its log.
    """

    by_source: bool = False

    def run(self, node: BrokerNode) -> object:
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
    """Reset the counts of login attempts to zero."""

    def run(self, node: BrokerNode) -> None:
        node.broker.login_throttle.reset()
