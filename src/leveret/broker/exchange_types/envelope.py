"""A message as exchanges see it."""

from __future__ import annotations

from leveret.broker.messages.contents import header_of, raw_headers
from leveret.broker.terms import comparable
from leveret.wire.properties import property_spans


class Envelope:
    """keys: its routing key, then those of CC and BCC. key: exchange and routing key as they are kept with it.

    content: its frames; empty while a route is looked for that holds for all messages with these keys. is_staged:
    nobody must see it yet.
    """

    def __init__(self, keys: list[str], key: bytes, content: bytes) -> None:
        self.keys = keys
        self.key = key
        self.content = content
        self.is_staged = False
        self._headers: dict[bytes, bytes] | None = None
        self._comparables: dict[bytes, object] = {}

    def headers(self) -> dict[bytes, bytes]:
        """The encoded headers by name; of two with one name the first."""
        if self._headers is None:
            self._headers = dict(reversed(raw_headers(header_of(self.content))))
        return self._headers

    def header(self, name: bytes) -> object:
        """What this header is compared by; None if it is not there."""
        found = self._comparables.get(name)
        if found is None:
            value = self.headers().get(name)
            if value is not None:
                found = self._comparables[name] = comparable(value)
        return found

    def property(self, wanted: str) -> bytes:
        """The octets of a property; empty if it is not there."""
        header = header_of(self.content)
        for name, start, stop in property_spans(header):
            if name == wanted:
                return header[start:stop]
        return b""
