"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import (
    backup,
    bindings,
    connections,
    definitions,
    exchanges,
    limits,
    listing,
    messages,
    objects,
    parameters,
    permissions,
    policies,
    queues,
    status,
    users,
    vhosts,
)

__all__ = [
    "backup",
    "bindings",
    "connections",
    "definitions",
    "exchanges",
    "limits",
    "listing",
    "messages",
    "objects",
    "parameters",
    "permissions",
    "policies",
    "queues",
    "status",
    "users",
    "vhosts",
]
