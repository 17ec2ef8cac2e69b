"""What a link remembers between its connections."""

from __future__ import annotations


class Memory:
    """What a link knows from one attempt to the next."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix or "A"  # A or B: the internal exchange that has all bindings
        self.is_known = suffix != ""  # whether such an exchange was ever made
        self.batch = 0  # the batch of the journal that records these two
        self.lacks = ""  # product and version of an upstream that lacks x-federation-upstream, "" if none is known
        self.lag: int | None = None  # messages in the upstream queue, None if not asked yet
        self.queue = ""  # the name of the upstream queue
        self.key = ""  # under which the broker remembers how far the link has got in that queue
        self.is_compared = False  # whether the types of the exchanges were compared
        self.warning = ""  # what the comparison has found, "" = nothing
