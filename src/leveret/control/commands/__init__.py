"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import (
    connections,
    definitions,
    limits,
    listing,
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
    "connections",
    "definitions",
    "limits",
    "listing",
    "objects",
    "parameters",
    "permissions",
    "policies",
    "queues",
    "status",
    "users",
    "vhosts",
]
