"""A filter for delayed messages."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.delayed.holder import Holder
from leveret.broker.messages.contents import header_of, raw_headers
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import text_property
from leveret.wire.table import decode_value


class DelayedFilter:
    """A filter for delayed messages: all parts that are given must match."""

    def __init__(
        self,
        layout: str | None = None,
        destination: str | None = None,
        message_id: str | None = None,
        due_from_us: i64 = 0,
        due_until_us: i64 = 0,
        headers: dict[str, str] | None = None,
        is_undeliverable: bool | None = None,
        message_ids: set[str] | None = None,
        without: dict[str, str] | None = None,
    ) -> None:
        self.layout = layout
        self.destination = destination
        self.message_id = message_id  # the message-id property
        self.due_from_us = due_from_us  # due at this time or later, 0 = any
        self.due_until_us = due_until_us  # due before this time, 0 = any
        self.headers = _by_octets(headers)  # names, and values as text ("5", "true")
        self.is_undeliverable = is_undeliverable  # True: due but without a route; False: still waiting
        self.message_ids = message_ids  # message-id is one of these
        self.without = _by_octets(without)  # no header of these names may have this value
        self._is_about_headers = bool(self.headers) or bool(self.without)
        self._is_about_content = self._is_about_headers or message_id is not None or message_ids is not None

    def takes_list(self, holder: Holder, is_undeliverable: bool) -> bool:
        """Whether messages that wait there may match."""
        return self.layout in (None, holder.layout) and self.is_undeliverable in (None, is_undeliverable)

    def takes(self, holder: Holder, key: bytes, expires_us: i64, content: bytes) -> bool:
        """Whether a message matches, or those that differ from it in their bodies only."""
        address = holder.address(key)
        if self.destination is not None and address.destination != self.destination:
            return False
        due_us = expires_us + address.later_us
        if due_us < self.due_from_us or due_us >= self.due_until_us > 0:
            return False
        return not self._is_about_content or self._says(header_of(content))

    def _says(self, header: bytes) -> bool:
        try:
            if self.message_id is not None or self.message_ids is not None:
                found = text_property(header, "message_id")
                if self.message_id is not None and found != self.message_id:
                    return False
                if self.message_ids is not None and found not in self.message_ids:
                    return False
            return not self._is_about_headers or self._has_headers(dict(reversed(raw_headers(header))))
        except ProtocolError:  # malformed, but never decoded before
            return False

    def _has_headers(self, found: dict[bytes, bytes]) -> bool:
        for name, text in self.headers.items():
            value = found.get(name)
            if value is None or _text(value) != text:
                return False
        for name, text in self.without.items():
            value = found.get(name)
            if value is not None and _text(value) == text:
                return False
        return True


def message_id_of(content: bytes) -> str | None:
    """Return the id of a message, None if it has none or its header is malformed."""
    try:
        return text_property(header_of(content), "message_id")
    except ProtocolError:
        return None


def _by_octets(headers: dict[str, str] | None) -> dict[bytes, str]:
    return {name.encode("utf-8", "surrogateescape"): text for name, text in (headers or {}).items()}


def _text(encoded: bytes) -> str:
    value, _ = decode_value(encoded, 0, len(encoded), 0)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
