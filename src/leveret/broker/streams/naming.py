"""Named consumers: the stream stores how far each has come; of those with one name a single one may be active.

x-leveret-consumer, text, is the name. Where it is known, its consumer begins behind what was acknowledged; else where
its x-stream-offset says, and that is stored at once, so that nothing is missed until it comes again. Nobody but the
latest consumer of a name moves its offset, so what one has but has not acknowledged is never passed by another.

With x-single-active-consumer=true the first consumer of the name is active, and the others wait; the one that came
next goes on behind what was acknowledged when it has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.streams.marks import NAME_OCTETS_MAX, Mark
from leveret.broker.streams.progress import Progress
from leveret.broker.terms import shown, type_of
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.streams.reader import Reader
    from leveret.broker.streams.stream import Stream

NAME: Final = "x-leveret-consumer"
SINGLE: Final = "x-single-active-consumer"


def refused_name(stream: Stream, arguments: dict[str, Value], types: dict[str, bytes]) -> str:
    """Why a stream's consumer can't have these arguments, "" if it can. types: the same as arguments.typed."""
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
    """What a reader's name makes of it. is_new: the name was not known; it is from now on, and begins where the reader
    does. is_single: of those with this name one is active; is_active: it is this one. progress: what it acknowledged.
    """

    def __init__(self, reader: Reader, name: str, is_single: bool) -> None:
        self.name = name
        self.is_single = is_single
        self.is_active = False
        self.progress = Progress()
        self._reader = reader
        self._stream = reader.stream
        self._number = reader.stream.next_reader()
        self.is_new = self._stream.offsets.get(name) is None
        mark = self._go_on()
        if not is_single:
            mark.owner = self._number

    def take_over(self) -> None:
        """Those that came before it are gone: it is the active one."""
        self.is_active = True
        self._go_on().owner = self._number

    def _go_on(self) -> Mark:
        mark = self._stream.offsets.get(self.name)
        if mark is None:
            return self._store(self._reader.next)
        self._reader.go_to(mark.value)
        return mark

    def acknowledged(self, offset: i64) -> None:
        """The reader's consumer has acknowledged this one: the name may stand further on, if nobody else has it."""
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


class Standing:
    """How far the consumers of a name have come. offset: behind what was acknowledged; lag: how many messages are
    there from it on; is_consuming: whether one of them is there."""

    def __init__(self, name: str, offset: int, lag: int, is_consuming: bool) -> None:
        self.name = name
        self.offset = offset
        self.lag = lag
        self.is_consuming = is_consuming


def standings(stream: Stream) -> list[Standing]:
    """Of all names that a stream knows, by name."""
    there = {named.name for named in _there(stream)}
    first, committed = int(stream.first), int(stream.committed)
    found: list[Standing] = []
    for name, offset in sorted(stream.offsets.table().items()):
        assert isinstance(offset, int)
        found.append(Standing(name, offset, max(0, committed - max(first, offset)), name in there))
    return found


def _there(stream: Stream) -> list[Named]:
    """Those of the stream's consumers that have names."""
    readers = [consumer.reader for consumer in stream.consumers.all()]
    return [reader.named for reader in readers if reader is not None and reader.named is not None]


def forget(stream: Stream, name: str, is_publisher: bool = False) -> bool:
    """Its next consumer begins as a new one; False if there was none. What its consumer acknowledges makes it known
    again. is_publisher: the same for a publisher's last number (numbers.py)."""
    is_known = (stream.sequences if is_publisher else stream.offsets).forget(name)
    if is_known:
        stream.mark()
    return is_known
