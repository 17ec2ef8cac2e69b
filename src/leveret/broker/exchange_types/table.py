"""The exchange types by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.exchange_types import consistent_hash, federation_upstream, recent_history
from leveret.broker.exchange_types.consistent_hash import ConsistentHash
from leveret.broker.exchange_types.direct import Direct
from leveret.broker.exchange_types.federation_upstream import FederationUpstream
from leveret.broker.exchange_types.headers import Headers
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.exchange_types.modulus_hash import ModulusHash
from leveret.broker.exchange_types.random_choice import RandomChoice
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchange_types.topic import Topic
from leveret.wire.table import split_table

KINDS: Final[dict[str, type[Matcher]]] = {
    "direct": Direct,
    "fanout": Matcher,
    "topic": Topic,
    "headers": Headers,
    "x-consistent-hash": ConsistentHash,
    federation_upstream.KIND: FederationUpstream,
    "x-modulus-hash": ModulusHash,
    "x-random": RandomChoice,
    "x-recent-history": RecentHistory,
}
_CHECKS: Final[dict[str, Callable[[dict[bytes, bytes]], str]]] = {
    "x-consistent-hash": consistent_hash.refused,
    federation_upstream.KIND: federation_upstream.refused,
    "x-recent-history": recent_history.refused,
}


def refused_arguments(kind: str, arguments: bytes) -> str:
    """Return the text of the 406 for an exchange of this type with these arguments, "" if they are valid."""
    check = _CHECKS.get(kind)
    return check(dict(split_table(arguments))) if check is not None else ""
