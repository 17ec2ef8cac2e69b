"""What goes over the control socket: one line of JSON per call, one per answer, in order.

{"call": {"command": NAME, ...}, "by": {"user": ..., "address": ..., "interface": ...}}: "by" may be left out.
{"ok": ...} or {"error": KIND, "reason": TEXT}.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from leveret.control.address import Sender
from leveret.control.refusal import Refused


class Caller(msgspec.Struct, frozen=True):
    """Who calls: the user ("" = whoever may open the socket), from which address, through which door."""

    user: str = ""
    address: str = ""
    interface: str = "socket"

    def known_as(self, sender: Sender) -> Caller:
        """With what the socket knows of its other end in place of what is not said."""
        return Caller(self.user or sender.user, self.address or sender.address, self.interface)


SOMEBODY: Final = Caller()


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """One line on the socket. call: the command as a table, with its name as "command"."""

    call: msgspec.Raw
    by: Caller = SOMEBODY


def call_line(command: str, fields: dict[str, Any], by: Caller) -> bytes:
    """One call as a line."""
    return msgspec.json.encode({"call": {"command": command, **fields}, "by": by}) + b"\n"


class _Named(msgspec.Struct):
    command: str


def named(call: msgspec.Raw) -> str:
    """The name of a command. msgspec.MsgspecError if there is none."""
    return msgspec.json.decode(call, type=_Named).command


def refusal(kind: str, reason: str) -> bytes:
    """The answer of a command that was not carried out."""
    return msgspec.json.encode({"error": kind, "reason": reason})


def result_of(line: bytes) -> Any:
    """What an answer says. Refused if the command was."""
    answer = msgspec.json.decode(line)
    if "error" in answer:
        raise Refused(answer["error"], answer["reason"])
    return answer["ok"]
