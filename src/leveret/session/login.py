"""SASL responses: PLAIN (RFC 4616), AMQPLAIN (a table without its length), EXTERNAL (the user is in a certificate)."""

from __future__ import annotations

import struct

from leveret.wire.errors import ACCESS_REFUSED, ProtocolError
from leveret.wire.table import decode_table

MECHANISMS = ("PLAIN", "AMQPLAIN")
EXTERNAL = "EXTERNAL"


def parse_response(mechanism: str, response: bytes) -> tuple[str, str]:
    """Parse (user, password) from a SASL response. ProtocolError for an unknown mechanism or a malformed response."""
    if mechanism == "PLAIN":
        parts = response.split(b"\x00")
        if len(parts) == 3:
            return parts[1].decode(errors="replace"), parts[2].decode(errors="replace")
    elif mechanism == "AMQPLAIN":
        try:
            table, _ = decode_table(struct.pack(">I", len(response)) + response, 0)
        except ProtocolError:
            raise refused(mechanism) from None
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(user, str) and isinstance(password, str):
            return user, password
    else:
        raise ProtocolError(ACCESS_REFUSED, f"Login was refused using unsupported mechanism {mechanism}", hard=True)
    raise refused(mechanism)


def refused(mechanism: str) -> ProtocolError:
    """The error for wrong credentials, with the text that clients look for."""
    text = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
    return ProtocolError(ACCESS_REFUSED, text, hard=True)
