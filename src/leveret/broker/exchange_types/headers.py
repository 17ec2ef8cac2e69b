"""The headers exchange: x-match all, any, all-with-x, any-with-x (RabbitMQ's exchange documentation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import STEP, Matcher
from leveret.broker.names import RandomBytes
from leveret.broker.terms import comparable, shown, type_of
from leveret.wire.table import Value, split_table

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination

MODES: Final = (b"all", b"any", b"all-with-x", b"any-with-x")


class HeaderPattern:
    """The headers that one binding asks for. A void value asks for the presence of a header."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        entries = dict(split_table(binding.arguments))
        mode = entries.pop(b"x-match", b"S\0\0\0\3all")[5:]
        self.mode = mode.decode()
        self.is_any = mode.startswith(b"any")  # one matching header is enough
        with_x = mode.endswith(b"-with-x")
        # name, value in a form to be compared (None = any), encoded value
        self.wanted: list[tuple[bytes, object, bytes]] = []
        self.passed_over: list[bytes] = []  # headers with x- that the mode ignores
        for name, value in entries.items():
            if with_x or not name.startswith(b"x-"):
                self.wanted.append((name, None if value[:1] == b"V" else comparable(value), value))
            else:
                self.passed_over.append(name)

    @property
    def size(self) -> i64:
        """Its share of Headers' weight: one, and one for each header."""
        return 1 + len(self.wanted)

    def takes(self, envelope: Envelope) -> bool:
        """Whether the message has one of the headers (any) or all of them (all)."""
        for name, wanted, _ in self.wanted:
            if fits(envelope, name, wanted) == self.is_any:
                return self.is_any
        return not self.is_any


def fits(envelope: Envelope, name: bytes, wanted: object) -> bool:
    """Whether the message has this header, with this value unless `wanted` is None."""
    found = envelope.header(name)
    return found is not None and (wanted is None or found == wanted)


class Headers(Matcher):
    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_per_message = True
        self.is_indexed = True
        self._patterns: dict[int, HeaderPattern] = {}
        self._size: i64 = 0  # sum of the patterns' sizes

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
        pattern = self._patterns[id(binding)] = HeaderPattern(binding)
        self._size += pattern.size

    def remove(self, binding: Binding) -> None:
        self._size -= self._patterns.pop(id(binding)).size

    def match(self, envelope: Envelope) -> list[Binding]:
        return self.standing([pattern.binding for pattern in self._patterns.values() if pattern.takes(envelope)])

    def weight(self, envelope: Envelope) -> i64:
        return self._size

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        bindings: list[Binding] = []
        yield from self.find_all(bindings)
        looked: i64 = 0
        for binding in bindings:
            while looked >= STEP:
                looked -= STEP
                yield
            pattern = self._patterns.get(id(binding))
            if pattern is not None and pattern.binding is binding:
                looked += pattern.size
                if pattern.takes(envelope):
                    found.append(binding)

    def pattern_of(self, binding: Binding) -> HeaderPattern | None:
        """Return the pattern of a binding, None if the binding is removed."""
        return self._patterns.get(id(binding))
