"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import connections, definitions, permissions, queues, users, vhosts

__all__ = ["connections", "definitions", "permissions", "queues", "users", "vhosts"]
