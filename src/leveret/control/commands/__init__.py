"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import (
    bindings,
    connections,
    definitions,
    exchanges,
    listing,
    messages,
    objects,
    permissions,
    queues,
    status,
    users,
    vhosts,
)

__all__ = [
    "bindings",
    "connections",
    "definitions",
    "exchanges",
    "listing",
    "messages",
    "objects",
    "permissions",
    "queues",
    "status",
    "users",
    "vhosts",
]
