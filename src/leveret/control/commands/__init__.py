"""The commands, by what they are about. Each is a Command; importing this package makes them known."""

from leveret.control.commands import definitions, users, vhosts

__all__ = ["definitions", "users", "vhosts"]
