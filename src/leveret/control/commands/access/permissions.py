"""Permissions: which names a user may configure, write and read (RabbitMQ, Access Control)."""

from __future__ import annotations

from leveret.broker.storage.definitions import PERMISSION, TOPIC_PERMISSION, Definition
from leveret.control.command import Command, Query
from leveret.control.node import BrokerNode
from leveret.control.validation.checks import check_patterns, user_named, vhost_named


class SetPermissions(Command):
    """Set the permissions of a user in a virtual host; they replace the previous ones."""

    user: str
    configure: str
    write: str
    read: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        user_named(node, self.user)
        check_patterns(self.configure, self.write, self.read)
        actions: Definition = {"configure": self.configure, "write": self.write, "read": self.read}
        node.broker.definitions.put(PERMISSION, {"user": self.user, "vhost": self.vhost, **actions})


class ClearPermissions(Command):
    """Remove the permissions of a user in a virtual host, so that the user cannot even open it."""

    user: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        user_named(node, self.user)
        node.broker.definitions.remove(PERMISSION, self.user, self.vhost)


class ListPermissions(Query):
    """List the permissions in a virtual host, or in all of them."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        return _in_vhost(node, PERMISSION, self.vhost)


class ListUserPermissions(Query):
    """List the permissions of a user in all virtual hosts."""

    user: str

    def run(self, node: BrokerNode) -> object:
        return _of_user(node, PERMISSION, self.user)


class SetTopicPermissions(Command):
    """Set which routing keys a user may write and read at a topic exchange; replaces the previous ones."""

    user: str
    exchange: str
    write: str
    read: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        user_named(node, self.user)
        check_patterns(self.write, self.read)
        definition: Definition = {"user": self.user, "vhost": self.vhost, "exchange": self.exchange}
        node.broker.definitions.put(TOPIC_PERMISSION, {**definition, "write": self.write, "read": self.read})


class ClearTopicPermissions(Command):
    """Remove a user's topic permissions for one exchange, or all of a virtual host; then all keys are allowed."""

    user: str
    vhost: str = "/"
    exchange: str | None = None

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        user_named(node, self.user)
        for permission in _of_user(node, TOPIC_PERMISSION, self.user):
            exchange = str(permission["exchange"])
            if permission["vhost"] == self.vhost and self.exchange in (None, exchange):
                node.broker.definitions.remove(TOPIC_PERMISSION, self.user, self.vhost, exchange)


class ListTopicPermissions(Query):
    """List the topic permissions in a virtual host, or in all of them."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        return _in_vhost(node, TOPIC_PERMISSION, self.vhost)


class ListUserTopicPermissions(Query):
    """List the topic permissions of a user in all virtual hosts."""

    user: str

    def run(self, node: BrokerNode) -> object:
        return _of_user(node, TOPIC_PERMISSION, self.user)


def _in_vhost(node: BrokerNode, kind: str, vhost: str | None) -> list[Definition]:
    permissions = node.broker.definitions.all(kind)
    if vhost is None:
        return permissions
    vhost_named(node, vhost)
    return [permission for permission in permissions if permission["vhost"] == vhost]


def _of_user(node: BrokerNode, kind: str, user: str) -> list[Definition]:
    user_named(node, user)
    return [permission for permission in node.broker.definitions.all(kind) if permission["user"] == user]
