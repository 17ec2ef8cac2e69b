"""The account: compares the message ids of every stage with those that the input makes due. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leveret.demo.account.crossing import Copies, crossing, repeated

EXAMPLES = 3
"""How many ids of a fault are named."""


@dataclass(frozen=True)
class Notice:
    """One delivered arrival notice.

    Attributes:
        flight_id: id of its flight.
        sent_ns: when the sink published it, or released its micro-batch, nanoseconds since the epoch.
        delay_ms: the requested delay in milliseconds.
        received_ns: when the collector received it, nanoseconds since the epoch (same machine, same clock).
    """

    flight_id: str
    sent_ns: int
    delay_ms: int
    received_ns: int

    @property
    def lateness_ms(self) -> float:
        """Milliseconds between the due time and the arrival."""
        return (self.received_ns - self.sent_ns) / 1e6 - self.delay_ms

    @property
    def early(self) -> bool:
        """Whether it arrived before it was due; computed in integers, as a float would round nanoseconds."""
        return self.received_ns < self.sent_ns + self.delay_ms * 1_000_000


@dataclass(frozen=True)
class Records:
    """The records of all stages: lists of flight ids with one entry per message, so that duplicates show.

    Attributes:
        expected: the flights in the input.
        due: those of them for which a notice is due.
        published, confirmed: what the publisher sent and what the broker confirmed.
        read: what the Spark source delivered to the job.
        replies: ids in the lookup service's replies.
        written: ids in the Parquet files.
        delivered: notices at the collector.
        copies: the copies on both sides of the links of a federated run; else None.
        audited: the audit's stage in a run on a cluster; else None.
    """

    expected: Sequence[str]
    due: Sequence[str]
    published: Sequence[str]
    confirmed: Sequence[str]
    read: Sequence[str]
    replies: Sequence[str]
    written: Sequence[str]
    delivered: Sequence[Notice]
    copies: Copies | None = None
    audited: AccountLine | None = None


@dataclass(frozen=True)
class AccountLine:
    """One line of the account.

    Attributes:
        name: of the stage.
        messages: their number, duplicates included.
        lost: ids that were due and did not arrive.
        duplicated: ids that arrived more than once.
        unexpected: ids that were not due.
        early: ids that arrived before their due time (notices only).
        repeated: ids that the publisher sent again for lack of a confirm; reported, but no fault.
    """

    name: str
    messages: int
    lost: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def adds_up(self) -> bool:
        """Whether nothing is lost, duplicated, unexpected or early."""
        return not (self.lost or self.duplicated or self.unexpected or self.early)

    def faults(self) -> list[str]:
        """Return one sentence per kind of fault, with some of the ids."""
        kinds = ("lost", "duplicated", "unexpected", "early")
        return [_sentence(self.name, kind, getattr(self, kind)) for kind in kinds if getattr(self, kind)]


@dataclass(frozen=True)
class Reconciliation:
    """The whole account, stage by stage in the order of the pipeline."""

    stages: tuple[AccountLine, ...]

    @property
    def adds_up(self) -> bool:
        """Whether every stage adds up."""
        return all(stage.adds_up for stage in self.stages)

    def faults(self) -> list[str]:
        """Return sentences for people; empty if everything adds up."""
        return [fault for stage in self.stages for fault in stage.faults()]


def _sentence(stage: str, kind: str, ids: tuple[str, ...]) -> str:
    more = ", …" if len(ids) > EXAMPLES else ""
    return f"{stage}: {len(ids)} {kind} ({', '.join(ids[:EXAMPLES])}{more})"


def compare(name: str, came: Sequence[str], due: Sequence[str], early: Sequence[str] = ()) -> AccountLine:
    """Return the account of one stage: each due id must have arrived exactly once."""
    counts, wanted = Counter(came), set(due)
    return AccountLine(
        name=name,
        messages=len(came),
        lost=tuple(sorted(wanted - counts.keys())),
        duplicated=tuple(sorted(flight_id for flight_id, times in counts.items() if times > 1)),
        unexpected=tuple(sorted(counts.keys() - wanted)),
        early=tuple(early),
    )


def reconcile(records: Records) -> Reconciliation:
    """Compare every stage with the input, so that a fault shows in each stage that it reached.

    The due ids are always derived from the input, never from an earlier stage: otherwise two stages that lose the same
    message would agree with each other.
    """
    early = [notice.flight_id for notice in records.delivered if notice.early]
    return Reconciliation(
        (
            *_sent(records),
            compare("read", records.read, records.expected),
            compare("replies", records.replies, records.expected),
            compare("written", records.written, records.expected),
            compare("delivered", [notice.flight_id for notice in records.delivered], records.due, early),
            *([records.audited] if records.audited is not None else []),
        )
    )


def _sent(records: Records) -> tuple[AccountLine, ...]:
    """Return the stages before the pipeline; with links, the publishers' repeats are told apart from duplicates."""
    copies = records.copies
    confirmed = compare("confirmed", records.confirmed, records.expected)
    if copies is None:
        return compare("published", records.published, records.expected), confirmed
    ids = [flight_id for flight_id, _ in set(copies.published)]
    published = compare("published", ids, records.expected)
    crossed = crossing(copies, records.expected)
    return (
        replace(published, duplicated=(), repeated=repeated(copies.published)),
        confirmed,
        AccountLine(
            "crossed",
            len(copies.crossed),
            crossed.lost,
            crossed.duplicated,
            crossed.unexpected,
            repeated=crossed.repeated,
        ),
    )
