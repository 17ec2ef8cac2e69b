"""The headers exchange: x-match all, any, all-with-x, any-with-x (RabbitMQ's exchange documentation)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.broker.terms import comparable, shown, type_of
from leveret.wire.table import Value, split_table

if TYPE_CHECKING:
    from leveret.broker.binding import Binding

MODES: Final = (b"all", b"any", b"all-with-x", b"any-with-x")


class Pattern:
    """What the arguments of one binding ask for. A void value asks for the presence of a header."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        entries = dict(split_table(binding.arguments))
        mode = entries.pop(b"x-match", b"S\0\0\0\3all")[5:]
        self._is_any = mode.startswith(b"any")
        with_x = mode.endswith(b"-with-x")
        self._wanted: list[tuple[bytes, object]] = []
        for name, value in entries.items():
            if with_x or not name.startswith(b"x-"):
                self._wanted.append((name, None if value[:1] == b"V" else comparable(value)))

    def takes(self, envelope: Envelope) -> bool:
        """Whether the message has one of the headers (any), or lacks none of them (all)."""
        for name, wanted in self._wanted:
            found = envelope.header(name)
            if (found is not None and (wanted is None or found == wanted)) == self._is_any:
                return self._is_any
        return not self._is_any


class Headers(Matcher):
    def __init__(self, bindings: dict[int, Binding], arguments: dict[str, Value], random_bytes: RandomBytes) -> None:
        super().__init__(bindings, arguments, random_bytes)
        self.is_per_message = True
        self._patterns: dict[int, Pattern] = {}

    def refusal(self, key: str, arguments: bytes) -> str:
        mode = dict(split_table(arguments)).get(b"x-match")
        if mode is None:
            return ""
        if mode[:1] != b"S":
            return f"Invalid x-match field type {type_of(mode)} (value {shown(mode)}); expected longstr"
        if mode[5:] not in MODES:
            return f"Invalid x-match field value {shown(mode)}; expected all, any, all-with-x, or any-with-x"
        return ""

    def add(self, binding: Binding) -> None:
        self._patterns[id(binding)] = Pattern(binding)

    def remove(self, binding: Binding) -> None:
        del self._patterns[id(binding)]

    def match(self, envelope: Envelope) -> list[Binding]:
        return [pattern.binding for pattern in self._patterns.values() if pattern.takes(envelope)]
