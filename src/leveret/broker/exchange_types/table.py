"""The exchange types by their names."""

from __future__ import annotations

from typing import Final

from leveret.broker.exchange_types.consistent_hash import ConsistentHash
from leveret.broker.exchange_types.deduplication import Deduplication
from leveret.broker.exchange_types.direct import Direct
from leveret.broker.exchange_types.exchange_arguments import (
    CONSISTENT_HASH,
    DEDUPLICATION,
    FEDERATION_UPSTREAM,
    RECENT_HISTORY,
)
from leveret.broker.exchange_types.federation_upstream import FederationUpstream
from leveret.broker.exchange_types.headers import Headers
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.exchange_types.modulus_hash import ModulusHash
from leveret.broker.exchange_types.random_choice import RandomChoice
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchange_types.topic import Topic

KINDS: Final[dict[str, type[Matcher]]] = {
    "direct": Direct,
    "fanout": Matcher,
    "topic": Topic,
    "headers": Headers,
    CONSISTENT_HASH: ConsistentHash,
    FEDERATION_UPSTREAM: FederationUpstream,
    DEDUPLICATION: Deduplication,
    "x-modulus-hash": ModulusHash,
    "x-random": RandomChoice,
    RECENT_HISTORY: RecentHistory,
}
