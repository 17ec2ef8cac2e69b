"""Named consumers: the stream stores their offsets, and may allow a single active consumer of each name.

x-leveret-consumer, a string, is the name. If the stream knows it, its consumer begins after the last acknowledged
message, else at its x-stream-offset, which is stored at once, so that nothing is missed until it comes again. Only the
latest consumer of a name moves its offset, so no other can move it past messages that this one has not acknowledged.

With x-single-active-consumer=true the first consumer of the name is active, and the others wait; when it has gone, the
next one continues after the last acknowledged message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.streams.marks import NAME_OCTETS_MAX, Mark
from leveret.broker.streams.progress import AckProgress
from leveret.broker.terms import shown, type_of
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.streams.reader import Reader
    from leveret.broker.streams.stream import Stream

NAME: Final = "x-leveret-consumer"
SINGLE: Final = "x-single-active-consumer"


def refused_name(stream: Stream, arguments: dict[str, Value], types: dict[str, bytes]) -> str:
    """Return why a stream's consumer can't have these arguments, "" if it can. types: see arguments.typed."""
    name, single = arguments.get(NAME), arguments.get(SINGLE, False)
    what = f"for {stream.what()}"
    if not isinstance(single, bool):
        return f"invalid arg '{SINGLE}' {what}: {{unacceptable_type,{type_of(types[SINGLE])}}}"
    if NAME not in arguments:
        return f"invalid arg '{SINGLE}' {what}: a single active consumer needs a name, '{NAME}'" if single else ""
    if not isinstance(name, str):
        return f"invalid arg '{NAME}' {what}: {{unacceptable_type,{type_of(types[NAME])}}}"
    if not 0 < len(name.encode("utf-8", "surrogateescape")) <= NAME_OCTETS_MAX:
        return f"invalid arg '{NAME}' {what}: {{unacceptable_length,{shown(types[NAME])}}}"
    for other in _there(stream):
        if other.name == name and other.is_single != single:
            kind = "" if other.is_single else "not "
            return f"inequivalent arg '{SINGLE}' {what}: consumers of name '{name}' are {kind}single active ones"
    return ""


class Named:
    """The name of a reader, and what follows from it."""

    def __init__(self, reader: Reader, name: str, is_single: bool) -> None:
        self.name = name
        self.is_single = is_single  # only one consumer of this name is active
        self.is_active = False  # this one is
        self.progress = AckProgress()  # what it has acknowledged
        self._reader = reader
        self._stream = reader.stream
        self._number = reader.stream.next_reader()
        self.is_new = self._stream.offsets.get(name) is None  # the name was unknown until now
        mark = self._go_on()
        if not is_single:
            mark.owner = self._number

    def take_over(self) -> None:
        """Become the active consumer, after those that came before are gone."""
        self.is_active = True
        self._go_on().owner = self._number

    def _go_on(self) -> Mark:
        mark = self._stream.offsets.get(self.name)
        if mark is None:
            return self._store(self._reader.next)
        self._reader.go_to(mark.value)
        return mark

    def acknowledged(self, offset: i64) -> None:
        """Handle an acknowledgement, and move the name's offset unless a later consumer owns it."""
        if not self.progress.acknowledged(offset) or self._stream.is_deleted:
            return
        mark = self._stream.offsets.get(self.name)
        if mark is None:
            self._store(self.progress.reached).owner = self._number
        elif mark.owner == self._number and self.progress.reached > mark.value:
            self._store(self.progress.reached)

    def _store(self, offset: i64) -> Mark:
        self._stream.mark()
        return self._stream.offsets.put(self.name, offset)


class StoredOffset:
    """The stored offset of a consumer name."""

    def __init__(self, name: str, offset: int, lag: int, is_consuming: bool) -> None:
        self.name = name
        self.offset = offset  # after the last acknowledged message
        self.lag = lag  # number of messages from there on
        self.is_consuming = is_consuming  # whether a consumer of this name exists


def standings(stream: Stream) -> list[StoredOffset]:
    """Return the standings of all names that a stream knows, sorted by name."""
    there = {named.name for named in _there(stream)}
    first, committed = int(stream.first), int(stream.committed)
    found: list[StoredOffset] = []
    for name, offset in sorted(stream.offsets.table().items()):
        assert isinstance(offset, int)
        found.append(StoredOffset(name, offset, max(0, committed - max(first, offset)), name in there))
    return found


def _there(stream: Stream) -> list[Named]:
    """Return the names of the stream's consumers that have one."""
    readers = [consumer.reader for consumer in stream.consumers.all()]
    return [reader.named for reader in readers if reader is not None and reader.named is not None]


def forget(stream: Stream, name: str, is_publisher: bool = False) -> bool:
    """Remove a name, so that its next consumer begins as a new one; False if it is unknown.

    Acknowledgements of a present consumer store it again. With is_publisher, remove a publisher's number (numbers.py).
    """
    is_known = (stream.sequences if is_publisher else stream.offsets).forget(name)
    if is_known:
        stream.mark()
    return is_known
