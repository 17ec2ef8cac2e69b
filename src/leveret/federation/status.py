"""How a link stands, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STARTING: Final = "starting"
RUNNING: Final = "running"
ERROR: Final = "error"  # it will try again
PAUSED: Final = "paused"  # an operator wanted that
REFUSED: Final = "not_federated"  # a policy asks for it, but this exchange can't be


@dataclass
class LinkStatus:
    """id: eight hexadecimal digits, "" where there is no link. status: one of the constants here; error: why it is not
    running, "" else; since_us: when that began, in the broker's time. uri: without credentials, "" before the first
    attempt.

    messages: published here since the link was made; looped: dropped, since they have been here or went too far;
    known: dropped, since a crash or a cut brought them twice; rejected: dropped, since they can't be published here;
    unacknowledged: on their way; lag: that still wait in the upstream queue, when it was last asked for, None = not
    yet. bindings: upstream, as wanted; unbound: of these, still on their way. reconnects: since the link was made.
    connection: number of its connection into the own broker (Peer.number), 0 = none. warning: what is strange about it
    though it runs, "" = nothing.
    """

    id: str
    vhost: str
    exchange: str
    upstream: str
    policy: str
    status: str
    error: str
    since_us: int
    uri: str = ""
    upstream_exchange: str = ""
    upstream_queue: str = ""
    max_hops: int = 0
    messages: int = 0
    looped: int = 0
    known: int = 0
    unacknowledged: int = 0
    lag: int | None = None
    bindings: int = 0
    unbound: int = 0
    reconnects: int = 0
    connection: int = 0
    rejected: int = 0
    warning: str = ""
