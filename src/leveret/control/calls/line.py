"""The protocol of the control socket: one line of JSON per call and one per answer, in order.

{"call": {"command": NAME, ...}, "by": {"user": ..., "address": ..., "interface": ...}}: "by" may be left out.

{"ok": ...} or {"error": KIND, "reason": TEXT}.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from leveret.control.calls.address import LocalProcess
from leveret.control.refusal import Refused


class Caller(msgspec.Struct, frozen=True):
    """The caller of a command."""

    user: str = ""  # "" = anyone who may open the socket
    address: str = ""
    interface: str = "socket"  # such as "socket", "ctl", "http"

    def known_as(self, sender: LocalProcess) -> Caller:
        """Return the caller with missing fields filled in from the peer of the socket."""
        return Caller(self.user or sender.user, self.address or sender.address, self.interface)


SOMEBODY: Final = Caller()


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """One call on the socket."""

    call: msgspec.Raw  # the command as a table, with its name as "command"
    by: Caller = SOMEBODY


def call_line(command: str, fields: dict[str, Any], by: Caller) -> bytes:
    """Encode one call as a line."""
    return msgspec.json.encode({"call": {"command": command, **fields}, "by": by}) + b"\n"


class _Named(msgspec.Struct):
    command: str


def named(call: msgspec.Raw) -> str:
    """Return the name of a command. Raises msgspec.MsgspecError if it is missing."""
    return msgspec.json.decode(call, type=_Named).command


def refusal(kind: str, reason: str) -> bytes:
    """Encode the answer of a command that was not carried out."""
    return msgspec.json.encode({"error": kind, "reason": reason})


def result_of(line: bytes) -> Any:
    """Return the result in an answer. Raises Refused if the command was refused."""
    answer = msgspec.json.decode(line)
    if "error" in answer:
        raise Refused(answer["error"], answer["reason"])
    return answer["ok"]
