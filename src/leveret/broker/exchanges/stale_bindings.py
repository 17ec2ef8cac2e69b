"""Stale bindings: those of deleted queues and exchanges, which are removed in steps.

A binding ends with its queue or exchange, at once: exchanges count and list only the others. But each has an entry in
the index of its exchange (Matcher.is_indexed) and takes memory, and to remove a million of them takes a second or two.
So that is done in steps; until then the exchange ignores those that its index still finds. A queue or exchange that is
redeclared is another object, and so are its bindings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Bindings, Destination
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.vhost import VHost

# bindings that are removed in one step, at most a quarter of a millisecond
STEP: Final[i64] = 128
# up to this number they are removed at once
AT_ONCE_MAX: Final[i64] = 64
# stale bindings that each new binding removes, so that clients which bind and delete all the time do not accumulate
# them
PACE: Final[i64] = 2


class StaleBatch:
    """Bindings from an exchange, by their destinations, where it or each destination is deleted."""

    def __init__(self, vhost: VHost, source: Exchange, bindings: dict[Destination, Bindings]) -> None:
        self._vhost = vhost
        self._source = source
        self._left = bindings
        self._current: Bindings = {}
        self._watch = source.watch  # of the exchange then: its watcher is notified if it is still the same
        source.matcher.stale_batches += 1

    def clear(self, most: i64) -> i64:
        """Remove up to `most` destinations and bindings; return how much of `most` is left."""
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
                    matcher.lose(destination)  # it may keep bindings outside of an index
            else:
                break
            most -= 1
        return most

    @property
    def is_left(self) -> bool:
        """Whether there are more."""
        return len(self._current) > 0 or len(self._left) > 0

    def end(self) -> None:
        """Called when all of them are removed from the index."""
        self._source.matcher.stale_batches -= 1


class StaleBindings:
    """The stale bindings of all virtual hosts; the last batch is removed first."""

    def __init__(self, at_once_max: i64 = AT_ONCE_MAX, pace: i64 = PACE) -> None:
        self._at_once_max = at_once_max
        self._pace = pace
        self._stale_batches: list[StaleBatch] = []
        self._fresh: i64 = 0  # how many an unfinished deletion has left so far

    @property
    def is_left(self) -> bool:
        """Whether there are any."""
        return len(self._stale_batches) > 0

    def add(self, vhost: VHost, source: Exchange, bindings: dict[Destination, Bindings], count: i64) -> None:
        """Add the `count` stale bindings from an exchange, by their destinations."""
        if bindings:
            self._fresh += count + len(bindings)
            self._stale_batches.append(StaleBatch(vhost, source, bindings))

    def settle(self, is_hurried: bool) -> None:
        """Handle the end of a deletion: remove its stale bindings if they are few or is_hurried."""
        if is_hurried or self._fresh <= self._at_once_max:
            self.clear(self._fresh)
        self._fresh = 0

    def keep_pace(self) -> None:
        """Handle a new binding: see PACE."""
        if self._stale_batches:
            self.clear(self._pace)

    def clear(self, most: i64 = STEP) -> None:
        """Remove up to `most` of them."""
        while self._stale_batches:
            stale_batch = self._stale_batches[-1]
            most = stale_batch.clear(most)
            if stale_batch.is_left:
                break
            stale_batch.end()
            self._stale_batches.pop()
