"""Permissions on AMQP: each method is checked here, in RabbitMQ's order and with its texts (measured on 3.10.8).

For a user with all permissions this is a look at one field. The answers for other users are cached until users or
permissions change; then all are stale and routes are looked up anew, so open connections notice at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.access.pattern import Pattern
from leveret.broker.access.users import READ, WRITE, User
from leveret.broker.delayed.delay import DELAYED, DELAYED_TYPE
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.names import DEFAULT_EXCHANGE
from leveret.wire.errors import ACCESS_REFUSED, NOT_ALLOWED, ProtocolError
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.exchanges.route import Route
    from leveret.broker.peer import Peer

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
TOPIC: Final = "topic"
ANY_KEY: Final = "#"  # in an error text: any routing key
# how many granted publishes (exchange and routing key) to topic exchanges are cached
GRANTED_MAX: Final = 4096


class Access:
    """What one user may do in one virtual host; nothing if user is None, because it does not exist (any more)."""

    def __init__(self, user: User | None, vhost: str) -> None:
        self.is_stale = False  # users have changed since: ask the broker for a new Access
        self.user = "" if user is None else user.name
        self.vhost = vhost
        self._patterns = None if user is None else user.permissions.get(vhost)
        self.topics: dict[str, dict[str, Pattern]] = {}  # patterns of routing keys, of exchanges with topic permissions
        if user is not None:
            for (where, exchange), patterns in user.topic_permissions.items():
                if where == vhost:
                    self.topics[exchange] = {action: self._expanded(each) for action, each in patterns.items()}
        patterns = self._patterns or {}
        # everything is allowed, so nothing needs a check
        self.may_all = not self.topics and len(patterns) > 0 and all(each.is_any for each in patterns.values())
        self._writable: set[str] = set()
        self._granted: set[bytes] = set()

    def _expanded(self, pattern: Pattern) -> Pattern:
        """Replace RabbitMQ's variables for AMQP 0-9-1; others, such as {client_id}, stay as they are."""
        return Pattern(pattern.text.replace("{username}", self.user).replace("{vhost}", self.vhost))

    def may(self, action: str, name: str) -> bool:
        """Return whether the user may configure, write or read the queue or exchange of this name."""
        return self.may_all or (self._patterns is not None and self._patterns[action].matches(name))

    def may_use_topic(self, action: str, exchange: Exchange | None, key: str) -> bool:
        """Return whether the user may write or read this routing key; always true without a topic permission."""
        if exchange is None or not is_topic(exchange):
            return True
        patterns = self.topics.get(exchange.name)
        return patterns is None or patterns[action].matches(key)

    def may_lead(self, name: str, exchange: Exchange | None, key: str | None) -> bool:
        """Return whether the user may let messages go on to this exchange, which need not exist, with this routing key.

        key: None = each message keeps its own key, which may be any.
        """
        patterns = self.topics.get(name)
        if patterns is None or (exchange is not None and not is_topic(exchange)):
            return True
        return patterns[WRITE].is_any if key is None else patterns[WRITE].matches(key)

    def may_publish(self, route: Route) -> bool:
        """Return whether the user may write to the exchange, from a cache."""
        name = "" if route.exchange is None else route.exchange.name
        if name in self._writable:
            return True
        if not self.may(WRITE, name or DEFAULT_EXCHANGE):
            return False
        self._writable.add(name)
        return True

    def may_publish_topic(self, route: Route) -> bool:
        """Return whether the user may write with the routing key, cached; always true without topic permissions."""
        exchange = route.exchange
        if exchange is None or exchange.name not in self.topics or not is_topic(exchange):
            return True
        if route.key in self._granted:
            return True
        if not self.may_use_topic(WRITE, exchange, route.keys[0]):
            return False
        if len(self._granted) >= GRANTED_MAX:
            self._granted.clear()
        self._granted.add(route.key)
        return True


def is_topic(exchange: Exchange) -> bool:
    """Return whether topic permissions apply to this exchange: it routes by topic, at once or after a delay."""
    return exchange.kind == TOPIC or (exchange.kind == DELAYED and exchange.arguments.get(DELAYED_TYPE) == TOPIC)


# for connections that have not logged in: stale, so that the first check asks for a real one
NOBODY: Final = Access(None, "")
NOBODY.is_stale = True
# for the control socket: everything is allowed
OPERATOR: Final = Access(None, "")
OPERATOR.may_all = True


def check_publish(peer: Peer, access: Access, route: Route) -> None:
    """Raise 403 (access refused) unless the user may publish to this exchange with this routing key."""
    if not access.may_publish(route):
        raise refused(peer, _exchange("" if route.exchange is None else route.exchange.name), 60, 40)
    if not access.may_publish_topic(route):
        raise refused(peer, _topic("" if route.exchange is None else route.exchange.name, route.keys[0]), 60, 40)


def check_copies(peer: Peer, route: Route) -> None:
    """Raise 403 unless the user may publish with all keys of CC and BCC, too (RabbitMQ 4.0; 3.10.8 does not check)."""
    access = peer.access()
    if access.may_all or route.exchange is None or route.exchange.name not in access.topics:
        return
    for key in route.keys[1:]:
        if not access.may_use_topic(WRITE, route.exchange, key):
            raise refused(peer, _topic(route.exchange.name, key), 60, 40)


def check(peer: Peer, method: Method, action: str, kind: str, name: str) -> None:
    """Raise 403 unless the user may configure, write or read this queue or exchange, which need not exist."""
    access = peer.access()
    if not access.may(action, name or DEFAULT_EXCHANGE):
        what = f"{QUEUE} '{name}'" if kind == QUEUE else _exchange(name)
        raise refused(peer, what, method.spec.class_id, method.spec.method_id)


def check_topic(peer: Peer, method: Method, exchange: Exchange | None, key: str) -> None:
    """Raise 403 unless the user may bind with this routing key."""
    if exchange is not None and not peer.access().may_use_topic(READ, exchange, key):
        raise refused(peer, _topic(exchange.name, key), method.spec.class_id, method.spec.method_id)


def check_onward(peer: Peer, method: Method, kind: str, name: str, exchange: str, key: str | None) -> None:
    """Raise 403 unless messages may go on from here to this exchange, as dead letters or to an alternate exchange.

    key: the routing key that they get; None = they keep theirs.
    """
    check(peer, method, READ, kind, name)
    check(peer, method, WRITE, EXCHANGE, exchange)
    check_lead(peer, method, exchange, key)


def check_lead(peer: Peer, method: Method, exchange: str, key: str | None) -> None:
    """Raise 403 unless the user may publish to this exchange with this key (None = any).

    RabbitMQ does not check this, so a user with a topic permission can publish with any key by way of a queue or
    exchange of its own.
    """
    if not peer.access().may_lead(exchange, peer.vhost.exchanges.get(exchange), key):
        what = _topic(exchange, ANY_KEY if key is None else key)
        raise refused(peer, what, method.spec.class_id, method.spec.method_id)


def check_channel(peer: Peer) -> None:
    """Raise 530 (not allowed) if the user's connections together have the maximum number of channels."""
    user = peer.broker.users.by_name.get(peer.user)
    most = -1 if user is None else user.limits.get("max-channels", -1)
    if 0 <= most <= sum([len(each.channels) for each in peer.broker.connections_of(peer.user)]):
        text = f"number of channels opened for user '{peer.user}' has reached the maximum allowed user limit of"
        raise ProtocolError(NOT_ALLOWED, f"{text} ({most})")


def refused(peer: Peer, what: str, class_id: int, method_id: int) -> ProtocolError:
    """Return RabbitMQ's error for a missing permission."""
    text = f"access to {what} in vhost '{peer.vhost.name}' refused for user '{peer.user}'"
    return ProtocolError(ACCESS_REFUSED, text, class_id, method_id)


def _exchange(name: str) -> str:
    return f"{EXCHANGE} '{name or DEFAULT_EXCHANGE}'"


def _topic(exchange: str, key: str) -> str:
    return f"topic '{key}' in exchange '{exchange}'"
