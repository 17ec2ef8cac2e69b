"""The sections of a definitions file.

Unknown fields are ignored, as in RabbitMQ: newer versions have more of them, and exports of old versions contain
run-time statistics.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# Erlang writes an empty table as an empty list
Table = dict[str, Any] | list[Any]


class Permission(msgspec.Struct):
    """Patterns of the names a user may configure, write and read."""

    configure: str
    write: str
    read: str


class UserEntry(msgspec.Struct):
    """A user."""

    name: str
    password: str | None = None  # either password, or password_hash with its algorithm
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    tags: str | list[str] | None = None  # a list, or one comma-separated text
    administrator: bool | str | None = None  # in files of RabbitMQ before 3.0
    limits: Table | None = None
    permissions: dict[str, Permission] = {}  # by virtual host, for a new user


class VhostEntry(msgspec.Struct):
    """A virtual host."""

    name: str
    description: str | None = None  # newer files have description and tags in metadata
    tags: str | list[str] | None = None
    metadata: dict[str, Any] | list[Any] = {}


class PermissionEntry(msgspec.Struct):
    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionEntry(msgspec.Struct):
    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ParameterEntry(msgspec.Struct):
    component: str
    name: str
    value: Any
    vhost: str | None = None


class GlobalParameterEntry(msgspec.Struct):
    name: str
    value: Any


class PolicyEntry(msgspec.Struct):
    name: str
    pattern: str
    definition: Table
    vhost: str | None = None
    priority: int = 0
    apply_to: str = msgspec.field(default="all", name="apply-to")


class QueueEntry(msgspec.Struct):
    name: str
    vhost: str | None = None
    durable: bool = False
    auto_delete: bool = False
    arguments: Table = {}


class ExchangeEntry(msgspec.Struct):
    name: str
    type: str
    vhost: str | None = None
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = {}


class BindingEntry(msgspec.Struct):
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    vhost: str | None = None
    routing_key: str = ""
    arguments: Table = {}


class Document(msgspec.Struct):
    """A whole file."""

    rabbitmq_version: str | None = None  # version of the broker that wrote the file
    rabbit_version: str | None = None  # the same in older files
    users: list[UserEntry] = []
    vhosts: list[VhostEntry] = []
    permissions: list[PermissionEntry] = []
    topic_permissions: list[TopicPermissionEntry] = []
    parameters: list[ParameterEntry] = []
    global_parameters: list[GlobalParameterEntry] = []
    policies: list[PolicyEntry] = []
    queues: list[QueueEntry] = []
    exchanges: list[ExchangeEntry] = []
    bindings: list[BindingEntry] = []
