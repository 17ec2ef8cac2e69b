"""Explains in words why a binding takes a message or not; one function for each type of exchange.

The matcher decides. The reason is found separately: `fits` is the decision that follows from it, and tests compare both
for random bindings and messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from leveret.broker.exchange_types import headers
from leveret.broker.exchange_types.consistent_hash import ConsistentHash, hash_of
from leveret.broker.exchange_types.deduplication import Deduplication
from leveret.broker.exchange_types.direct import Direct
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.federation_upstream import RECEIVED_FROM, FederationUpstream
from leveret.broker.exchange_types.headers import Headers
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.exchange_types.modulus_hash import ModulusHash, place_of
from leveret.broker.exchange_types.random_choice import RandomChoice
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchange_types.topic import Topic, words_of
from leveret.broker.exchanges.binding import Binding
from leveret.broker.terms import items_of, shown, type_of
from leveret.control.explain.walk import Visit
from leveret.control.tables import plain_table, plain_value, sayable
from leveret.wire.table import decode_table, decode_value


class Reason(NamedTuple):
    """Why a binding takes a message or not."""

    fits: bool  # whether the binding takes the message for this reason
    text: str


def reason_of(visit: Visit, binding: Binding, keys: list[str], envelope: Envelope) -> Reason:
    """Return why a binding of a visited exchange takes the message or not."""
    explain = _EXPLAINERS[type(visit.exchange.matcher)]
    return explain(Look(visit, binding, keys, envelope))


class Look(NamedTuple):
    """The arguments of an explaining function."""

    visit: Visit
    binding: Binding
    keys: list[str]
    envelope: Envelope

    @property
    def winner(self) -> Binding | None:
        """The binding that takes the message, for exchanges where only one can."""
        return self.visit.found[0] if self.visit.found else None


def quoted(text: str) -> str:
    """Quote a name for a sentence."""
    return f"'{sayable(text)}'"


def _fanout(look: Look) -> Reason:
    return Reason(True, "a fanout exchange routes every message")


def _history(look: Look) -> Reason:
    return Reason(True, "a recent-history exchange routes every message, and keeps the latest ones for new bindings")


def _deduplication(look: Look) -> Reason:
    matcher = look.visit.exchange.matcher
    assert isinstance(matcher, Deduplication)
    if matcher.is_duplicate(look.envelope):
        return Reason(False, "its x-deduplication-header is that of a message which the exchange has routed before")
    return Reason(True, "a deduplication exchange routes every message that is no duplicate of an earlier one")


def _direct(look: Look) -> Reason:
    if look.binding.key in look.keys:
        return Reason(True, f"the routing key is {quoted(look.binding.key)}{_by_copy(look, look.binding.key)}")
    return Reason(False, f"{_keys(look.keys)}, the binding requires {quoted(look.binding.key)}")


def _topic(look: Look) -> Reason:
    failures = []
    for key in look.keys:
        failure = topic_failure(look.binding.key, key)
        if not failure:
            text = f"pattern {quoted(look.binding.key)} matches key {quoted(key)}{_by_copy(look, key)}"
            return Reason(True, text)
        failures.append(failure if len(look.keys) == 1 else f"key {quoted(key)}: {failure}")
    return Reason(False, f"pattern {quoted(look.binding.key)}: " + "; ".join(failures[:3]))


def topic_failure(pattern: str, key: str) -> str:
    """Return why a topic pattern does not match a key, "" if it does. Its positions are followed word by word."""
    wanted, words = words_of(pattern), words_of(key)
    places = _over_many(wanted, {0})
    for number, word in enumerate(words, 1):
        after = {place for place in places if place < len(wanted) and wanted[place] == "#"}
        after |= {place + 1 for place in places if place < len(wanted) and _stands_for(wanted[place], word)}
        if not after:
            hopes = sorted({wanted[place] for place in places if place < len(wanted)})
            if not hopes:
                return f"the pattern ends before word {number} of the key, {quoted(word)}"
            return f"word {number} of the key is {quoted(word)}, the pattern requires {_or(hopes)} there"
        places = _over_many(wanted, after)
    if len(wanted) in places:
        return ""
    missing = sorted({wanted[place] for place in places if wanted[place] != "#"})
    return f"the key ends after {_count(len(words), 'word')}, the pattern requires {_or(missing)} after that"


def _stands_for(wanted: str, word: str) -> bool:
    # in a key, * and # are ordinary words that only a wildcard matches
    return wanted == "*" or (wanted == word and wanted != "#")


def _over_many(wanted: list[str], places: set[int]) -> set[int]:
    """Add the positions after each #, which may match no words."""
    found = set[int]()
    for start in places:
        place = start
        while place < len(wanted) and wanted[place] == "#":
            found.add(place)
            place += 1
        found.add(place)
    return found


def _headers(look: Look) -> Reason:
    matcher = look.visit.exchange.matcher
    assert isinstance(matcher, Headers)
    pattern = matcher.pattern_of(look.binding)
    if pattern is None:
        return Reason(False, "the binding no longer exists")
    begun = f"x-match is {pattern.mode}"
    if not pattern.wanted:
        text = f"{begun}, and the binding requires no headers{_passed_over(pattern)}"
        return Reason(not pattern.is_any, text)
    good, bad = [], []
    for name, wanted, encoded in pattern.wanted:
        if headers.fits(look.envelope, name, wanted):
            good.append(f"header {_name(name)} is {'present' if wanted is None else _shown(encoded)}")
        else:
            bad.append(_misfit(look.envelope, name, encoded, wanted is None))
    if pattern.is_any:
        return Reason(True, f"{begun}: {good[0]}") if good else Reason(False, f"{begun}: {_several(bad)}")
    if bad:
        return Reason(False, f"{begun}: {_several(bad)}{_passed_over(pattern)}")
    return Reason(True, f"{begun}: {_several(good)}")


def _misfit(envelope: Envelope, name: bytes, encoded: bytes, is_presence: bool) -> str:
    found = envelope.headers().get(name)
    if found is None:
        return f"header {_name(name)} is missing" + ("" if is_presence else f" (required: {_shown(encoded)})")
    is_other_type = _shown(found) == _shown(encoded)
    have, want = (f"{_shown(each)} ({type_of(each)})" if is_other_type else _shown(each) for each in (found, encoded))
    return f"header {_name(name)} is {have}, the binding requires {want}"


def _passed_over(pattern: headers.HeaderPattern) -> str:
    if not pattern.passed_over:
        return ""
    names = ", ".join(_name(name) for name in pattern.passed_over)
    return f" ({names}: only compared with x-match {'any' if pattern.is_any else 'all'}-with-x)"


def _consistent_hash(look: Look) -> Reason:
    matcher, winner = look.visit.exchange.matcher, look.winner
    assert isinstance(matcher, ConsistentHash)
    what = f"the {matcher.subject()} has hash {hash_of(matcher.hashed(look.envelope))}"
    share = matcher.share_of(look.binding)
    if share is None or share.binding is not look.binding:
        return Reason(False, "the binding has no hash range: its destination was bound more than once")
    if winner is look.binding:
        return Reason(True, f"{what}, which is in its range (weight {share.weight:g})")
    taker = "no range" if winner is None else f"the range of {destination_of(winner)}"
    return Reason(False, f"{what}, which is in {taker}")


def _modulus_hash(look: Look) -> Reason:
    winner, count = look.winner, int(look.visit.exchange.binding_count)
    place = place_of(look.keys, count) + 1 if count else 0
    what = f"the routing key's hash modulo {_count(count, 'binding')} chooses number {place}"
    if winner is look.binding:
        return Reason(True, f"{what}, this one")
    return Reason(False, what if winner is None else f"{what}, {destination_of(winner)}")


def _by_chance(look: Look) -> Reason:
    count = len(look.visit.found)
    return Reason(True, "the only binding" if count == 1 else f"one of {count} bindings is chosen at random")


def _federation(look: Look) -> Reason:
    matcher = look.visit.exchange.matcher
    assert isinstance(matcher, FederationUpstream)
    received = look.envelope.headers().get(RECEIVED_FROM, b"V")
    hops = items_of(received) if received[:1] == b"A" else []
    for number, hop in enumerate(hops, 1):
        if matcher.is_here(hop):
            fields = plain_table(decode_table(hop, 1)[0])
            been = f"cluster {fields.get('cluster-name')!r}, vhost {fields.get('vhost')!r}"
            return Reason(False, f"the message has already been there: hop {number} of x-received-from is {been}")
    if received[:1] == b"A" and len(hops) >= matcher.max_hops:
        text = (
            f"the message has crossed {_count(len(hops), 'link')} (x-received-from), and max-hops is "
            f"{matcher.max_hops}"
        )
        return Reason(False, text)
    come = f"the message has crossed {_count(len(hops), 'link')}" if hops else "the message has crossed no link"
    return Reason(True, f"{come}, fewer than max-hops ({matcher.max_hops}), and has not been there yet")


_EXPLAINERS: Final[dict[type[Matcher], Callable[[Look], Reason]]] = {
    Matcher: _fanout,
    Direct: _direct,
    Topic: _topic,
    Headers: _headers,
    ConsistentHash: _consistent_hash,
    ModulusHash: _modulus_hash,
    RandomChoice: _by_chance,
    RecentHistory: _history,
    Deduplication: _deduplication,
    FederationUpstream: _federation,
}


# -- texts -------------------------------------------------------------------------------------------------------------


def destination_of(binding: Binding) -> str:
    """Return the destination of a binding, for a sentence."""
    kind = "exchange" if hasattr(binding.destination, "matcher") else "queue"
    return f"{kind} {quoted(binding.destination.name)}"


def _keys(keys: list[str]) -> str:
    if len(keys) == 1:
        return f"the routing key is {quoted(keys[0])}"
    return f"the routing keys (with CC and BCC) are {', '.join(map(quoted, keys[:5]))}"


def _by_copy(look: Look, key: str) -> str:
    return "" if key == look.keys[0] else " (from CC or BCC)"


def _or(words: list[str]) -> str:
    return " or ".join(quoted(word) for word in words)


def _several(texts: list[str]) -> str:
    more = f", and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _name(name: bytes) -> str:
    return quoted(name.decode("utf-8", "surrogateescape"))


def _shown(encoded: bytes) -> str:
    if encoded[:1] in (b"S", b"x"):
        return repr(plain_value(decode_value(encoded, 0, len(encoded), 0)[0]))
    return shown(encoded)
