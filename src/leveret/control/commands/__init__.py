"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import (
    connections,
    definitions,
    listing,
    objects,
    permissions,
    queues,
    status,
    users,
    vhosts,
)

__all__ = [
    "connections",
    "definitions",
    "listing",
    "objects",
    "permissions",
    "queues",
    "status",
    "users",
    "vhosts",
]
