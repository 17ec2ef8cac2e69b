"""What a definitions file says, by its sections. Unknown fields are passed over, as RabbitMQ does: newer versions have
more, and exports of old ones have run-time figures among them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# Erlang writes an empty table as an empty list
Table = dict[str, Any] | list[Any]


class Permission(msgspec.Struct):
    """Patterns of names."""

    configure: str
    write: str
    read: str


class UserEntry(msgspec.Struct):
    """password, or password_hash with its algorithm. tags: a list, or one text with commas; administrator: how RabbitMQ
    before 3.0 said it. permissions: by virtual host, for a user who is new."""

    name: str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    tags: str | list[str] | None = None
    administrator: bool | str | None = None
    limits: Table | None = None
    permissions: dict[str, Permission] = {}


class VhostEntry(msgspec.Struct):
    """description and tags stand in metadata in newer files."""

    name: str
    description: str | None = None
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
    """A whole file. rabbitmq_version, or rabbit_version in older files: of the broker that wrote it."""

    rabbitmq_version: str | None = None
    rabbit_version: str | None = None
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
