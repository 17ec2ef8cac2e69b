"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import connections, lifecycle, permissions, queues, settings, users, vhosts

__all__ = ["connections", "lifecycle", "permissions", "queues", "settings", "users", "vhosts"]
