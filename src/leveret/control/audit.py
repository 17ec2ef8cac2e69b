"""Who changed what, from where: a line in the log for each administrative action."""

from __future__ import annotations

import logging

import msgspec

from leveret.control.command import Command
from leveret.control.line import Caller

logger = logging.getLogger("leveret.audit")


class Audit:
    """Writes to the logger "leveret.audit"."""

    def note(self, by: Caller, command: Command, outcome: str) -> None:
        """One command that was carried out or refused. What is secret of it is not said."""
        fields = msgspec.to_builtins(command)
        name = fields.pop("command")
        said = {field: "***" if field in command.secrets else value for field, value in fields.items()}
        text = msgspec.json.encode(said).decode()
        user, address = by.user or "-", by.address or "-"
        logger.info("audit user=%s address=%s via=%s %s %s %s", user, address, by.interface, name, text, outcome)
