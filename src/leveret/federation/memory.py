"""What outlasts a connection of a link."""

from __future__ import annotations


class Memory:
    """What a link knows from one attempt to the next.

    suffix: of the internal exchange that has all bindings, A or B; is_known: whether there ever was one. lacks: product
    and version of an upstream that does not know x-federation-upstream, "" = none is known; lag: messages in the
    upstream queue, None = never asked; queue: its name; key: under which the broker remembers how far the link has got
    in it; is_compared: whether the types of the exchanges were, and warning: what was found.
    """

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix or "A"
        self.is_known = suffix != ""
        self.lacks = ""
        self.lag: int | None = None
        self.queue = ""
        self.key = ""
        self.is_compared = False
        self.warning = ""
