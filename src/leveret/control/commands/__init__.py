"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import listing, objects, status, users, vhosts

__all__ = ["listing", "objects", "status", "users", "vhosts"]
