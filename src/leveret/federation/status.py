"""The status of a link, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STARTING: Final = "starting"
RUNNING: Final = "running"
ERROR: Final = "error"  # it will try again
PAUSED: Final = "paused"  # by an operator
REFUSED: Final = "not_federated"  # a policy asks for federation, but this exchange cannot be federated


@dataclass
class LinkStatus:
    """The status of a link.

    Attributes:
        id: Eight hexadecimal digits, "" if there is no link.
        status: One of the constants in this module.
        error: Why it is not running, else "".
        since_us: When the status began, in the broker's time.
        uri: Without credentials, "" before the first attempt.
        messages: Published here since the link was made.
        looped: Dropped, since they have been here or went too far.
        known: Dropped, since a crash or a lost connection brought them twice.
        rejected: Dropped, since they cannot be published here.
        unacknowledged: On their way.
        lag: Messages in the upstream queue at the last check, None if it was not checked yet.
        bindings: How many the upstream should have.
        unbound: How many of these the upstream has not confirmed yet.
        reconnects: Since the link was made.
        connection: Number of its connection into the own broker (Peer.number), or 0.
        warning: What is unusual about it though it runs, "" if nothing is.
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
