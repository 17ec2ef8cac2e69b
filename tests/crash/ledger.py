"""What the clients know, and whether a restarted broker contradicts it."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

PREFIX = "crash."
LONG_SIZE = 200_000


@dataclass(eq=False)
class Place:
    """A queue that gets every message, and the queue for its dead letters: each message is in one of them, once.

    Attributes:
        settled: Messages that a consumer acknowledged: they may be gone or not.
        settled_for_sure: A later publish on the acknowledgement's channel was confirmed, so the message must be gone.
        kept: Seen after a restart, so no later crash may lose them.
    """

    name: str
    dead: str = ""
    arguments: dict[str, object] = field(default_factory=dict)
    is_dead_in_order: bool = True
    settled: set[int] = field(default_factory=set)
    settled_for_sure: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    hopped: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    present: set[int] = field(default_factory=set)

    @property
    def queues(self) -> list[str]:
        return [PREFIX + self.name, *([PREFIX + self.dead] if self.dead else [])]

    def check(self, ledger: "Ledger", alive: list[int], dead: list[int]) -> None:
        """Compare the contents of the two queues, in order, with what is known."""
        present = set(alive) | set(dead)
        assert len(present) == len(alive) + len(dead), f"{self.name}: a message is there twice"
        assert present <= set(range(1, ledger.attempted + 1)), f"{self.name}: a message was invented"
        assert alive == sorted(alive), f"{self.name}: the order was lost"
        assert dead == sorted(dead) or not self.is_dead_in_order, f"{self.dead}: the order was lost"
        lost = (ledger.confirmed | self.kept) - self.settled - present
        assert not lost, f"{self.name}: confirmed and lost: {sorted(lost)[:10]} of {len(lost)}"
        back = self.settled_for_sure & present
        assert not back, f"{self.name}: settled and synced, and back: {sorted(back)[:10]}"
        back = self.gone & present
        assert not back, f"{self.name}: an earlier life had lost or settled these: {sorted(back)[:10]}"
        back = self.hopped & set(alive)
        assert not back, f"{self.name}: an earlier life had dead-lettered these: {sorted(back)[:10]}"
        ledger.hits["acknowledgements forgotten"] += len(self.settled & present)
        if self.dead:
            ledger.hits[f"dead letters in {self.dead}"] += len(set(dead) - self.hopped)
        self.hopped |= set(dead)
        self.kept |= present
        self.gone = set(range(1, ledger.attempted + 1)) - present
        self.present = present
        # Messages whose acknowledgement was lost will be acknowledged again.
        self.settled -= present


class Ledger:
    """What the clients know. A message is its number; numbers grow in the order of publishing."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.attempted = 0
        self.confirmed: set[int] = set()
        self.unconfirmed: set[int] = set()
        self.sizes: dict[int, int] = {}
        self.hits: Counter[str] = Counter()
        ttl = {"x-message-ttl": 150}
        self.work = Place("work", "dead", self._dead_letters("dead"), is_dead_in_order=False)
        self.timed = Place("timed", "expired", self._dead_letters("expired") | ttl)
        self.full = Place("full", "overflow", self._dead_letters("overflow") | {"x-max-length": 200})
        self.copy = Place("copy")
        self.places = [self.work, self.timed, self.full, self.copy]
        # Numbers of queues, each with an exchange and a binding, whose declaration or deletion was answered.
        self.things = 0
        self.declared: set[int] = set()
        self.deleted: set[int] = set()

    @staticmethod
    def _dead_letters(queue: str) -> dict[str, object]:
        return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": PREFIX + queue}

    def next(self) -> tuple[int, bytes]:
        """Return the next number and its body: the number and a filler, mostly short, sometimes longer than a frame."""
        number = self.attempted = self.attempted + 1
        size = LONG_SIZE if number % 97 == 0 else self.generator.choice((10, 100, 100, 1000, 5000))
        self.sizes[number] = size
        return number, b"%d:" % number + b"x" * size

    def number(self, body: bytes) -> int:
        """Return the number of a body; check that the body is complete."""
        digits, _, filler = body.partition(b":")
        number = int(digits)
        assert len(filler) == self.sizes[number]
        return number

    def killed(self) -> None:
        """Note that the broker is dead: nothing more will be confirmed."""
        last = self.copy.gone | self.copy.kept | self.copy.settled
        self.unconfirmed = set(range(1, self.attempted + 1)) - self.confirmed - last
        self.hits["kills"] += 1
        self.hits["kills with publishes unconfirmed"] += bool(self.unconfirmed)
        self.hits["publishes unconfirmed at a kill"] += len(self.unconfirmed)

    def check_together(self) -> None:
        """Check that a message reached all of its queues or none, unless a consumer settled it."""
        for place in self.places:
            for other in self.places:
                torn = place.present - other.present - other.settled
                assert not torn, f"in {place.name}, but not in {other.name}: {sorted(torn)[:10]}"
        self.hits["publishes unconfirmed at a kill that came back"] += len(self.unconfirmed & self.copy.present)

    def report(self) -> Iterator[str]:
        """Yield how often each situation was hit, a line each."""
        for what, count in sorted(self.hits.items()):
            yield f"{count:8}  {what}"
