"""What deleted queues and exchanges leave behind: their bindings, which are cleared away by and by.

A binding is gone with its queue or exchange, at once and for everybody: exchanges count and list those that stand. But
each has an entry in the index of its exchange (Matcher.is_indexed) and takes memory, and to take out a million of them
lasts a second or two. So that is done in steps; until then the exchange passes over what its index still finds of them.
A queue or exchange that is declared anew is another object, and so are its bindings: nothing of the old ones is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Bindings, Destination
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.vhost import VHost

# bindings that are cleared away in one step, at most a quarter of a millisecond
STEP: Final[i64] = 128
# so few need no steps
AT_ONCE_MAX: Final[i64] = 64
# each new binding clears away so many, so that what comes and goes all the time does not pile up
PACE: Final[i64] = 2


class StaleBatch:
    """Bindings from an exchange, by their destinations; it or each of these is gone.

    watch: that of the exchange when they went: its watcher hears of them if it is the same that has heard of them.
    """

    def __init__(self, vhost: VHost, source: Exchange, bindings: dict[Destination, Bindings]) -> None:
        self._vhost = vhost
        self._source = source
        self._left = bindings
        self._current: Bindings = {}
        self._watch = source.watch
        source.matcher.stale_batches += 1

    def clear(self, most: i64) -> i64:
        """Clear away so much, each destination and each binding counting as one; returns how much more could be."""
        source = self._source
        matcher = source.matcher
        is_watched = self._watch != 0 and source.watch == self._watch
        while most > 0:
            if self._current:
                _, binding = self._current.popitem()
                if matcher.is_indexed:
                    matcher.remove(binding)
                if is_watched:
                    self._vhost.watcher.unbound(self._vhost, binding)
            elif self._left:
                destination, self._current = self._left.popitem()
                if destination.incoming.get(source) is self._current:
                    del destination.incoming[source]
                if source.is_deleted:
                    matcher.lose(destination)  # it may keep bindings besides an index
            else:
                break
            most -= 1
        return most

    @property
    def is_left(self) -> bool:
        """There is more of it."""
        return len(self._current) > 0 or len(self._left) > 0

    def end(self) -> None:
        """The index has nothing of it any more."""
        self._source.matcher.stale_batches -= 1


class StaleBindings:
    """Of all virtual hosts; what came last goes first."""

    def __init__(self, at_once_max: i64 = AT_ONCE_MAX, pace: i64 = PACE) -> None:
        self._at_once_max = at_once_max
        self._pace = pace
        self._stale_batches: list[StaleBatch] = []
        self._fresh: i64 = 0  # how much of it a deletion has left that is not complete

    @property
    def is_left(self) -> bool:
        """There is something to clear away."""
        return len(self._stale_batches) > 0

    def add(self, vhost: VHost, source: Exchange, bindings: dict[Destination, Bindings], count: i64) -> None:
        """So many bindings from this exchange are gone, by their destinations."""
        if bindings:
            self._fresh += count + len(bindings)
            self._stale_batches.append(StaleBatch(vhost, source, bindings))

    def settle(self, is_hurried: bool) -> None:
        """A deletion is complete: clear away what it left, if that is little or is_hurried."""
        if is_hurried or self._fresh <= self._at_once_max:
            self.clear(self._fresh)
        self._fresh = 0

    def keep_pace(self) -> None:
        """A binding comes: see PACE."""
        if self._stale_batches:
            self.clear(self._pace)

    def clear(self, most: i64 = STEP) -> None:
        """Clear away a part of it."""
        while self._stale_batches:
            stale_batch = self._stale_batches[-1]
            most = stale_batch.clear(most)
            if stale_batch.is_left:
                break
            stale_batch.end()
            self._stale_batches.pop()
