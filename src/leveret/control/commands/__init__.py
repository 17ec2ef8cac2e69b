"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import connections, limits, parameters, permissions, policies, queues, users, vhosts

__all__ = ["connections", "limits", "parameters", "permissions", "policies", "queues", "users", "vhosts"]
