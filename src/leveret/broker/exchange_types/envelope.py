"""A message as exchanges see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.messages.contents import header_of, raw_headers
from leveret.broker.terms import comparable
from leveret.wire.properties import property_spans

if TYPE_CHECKING:
    from leveret.broker.exchange_types.matcher import Matcher


class Envelope:
    """A message as exchanges see it."""

    def __init__(self, keys: list[str], key: bytes, content: bytes) -> None:
        self.keys = keys  # its routing key, then those of CC and BCC
        self.key = key  # exchange and routing key, as stored with the message
        self.content = content  # its frames; empty while a route for all messages with these keys is looked up
        self.is_staged = False  # consumers must not see it yet
        self.is_duplicate = False  # a deduplication exchange has not routed it
        self.seen_by: list[Matcher] | None = None  # the deduplication exchanges that have kept its key
        self._headers: dict[bytes, bytes] | None = None
        self._comparables: dict[bytes, object] = {}

    def headers(self) -> dict[bytes, bytes]:
        """Return the encoded headers by name; the first of two with the same name."""
        if self._headers is None:
            self._headers = dict(reversed(raw_headers(header_of(self.content))))
        return self._headers

    def header(self, name: bytes) -> object:
        """Return a header's value in a form to be compared, None if it is missing."""
        found = self._comparables.get(name)
        if found is None:
            value = self.headers().get(name)
            if value is not None:
                found = self._comparables[name] = comparable(value)
        return found

    def property(self, wanted: str) -> bytes:
        """Return the octets of a property, empty if it is missing."""
        header = header_of(self.content)
        for name, start, stop in property_spans(header):
            if name == wanted:
                return header[start:stop]
        return b""
