"""Checks that many commands make before they change anything; the error texts are RabbitMQ's."""

from __future__ import annotations

from leveret.broker.access.pattern import refused_pattern
from leveret.broker.access.users import User
from leveret.broker.vhost import VHost
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request, not_found


def user_named(node: BrokerNode, name: str) -> User:
    """Return the user of this name. Raises Refused if it does not exist."""
    user = node.broker.users.by_name.get(name)
    if user is None:
        raise not_found(f'User "{name}" does not exist')
    return user


def vhost_named(node: BrokerNode, name: str) -> VHost:
    """Return the virtual host of this name. Raises Refused if it does not exist or is being deleted."""
    vhost = node.broker.vhosts.get(name)
    if vhost is None or vhost.is_leaving:
        raise not_found(f"Virtual host '{name}' does not exist")
    return vhost


def check_patterns(*patterns: str) -> None:
    """Raise Refused if one of the patterns is not a valid regular expression."""
    for pattern in patterns:
        reason = refused_pattern(pattern)
        if reason:
            raise bad_request(f"regular expression '{pattern}' is invalid: {reason}")
