"""The account as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from leveret.demo.account.crossing import Copies
from leveret.demo.account.reconcile import Reconciliation
from leveret.demo.airports import Airports, AirportSample


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile; 0 without values."""
    ordered = sorted(values) or [0.0]
    return statistics.median(ordered), ordered[len(ordered) * 99 // 100]


def table(account: Reconciliation, due: int, rates: Mapping[str, float]) -> Table:
    """Return the account by message ids as a table, one row per stage.

    Args:
        account: the result of ``reconcile``.
        due: the number of due notices.
        rates: messages per second by stage; may lack stages.
    """
    result = Table(title="Reconciled by message ids", title_justify="left")
    for heading in ("stage", "messages", "lost", "duplicated", "unexpected", "early", "per second"):
        result.add_column(heading, justify="left" if heading == "stage" else "right", no_wrap=True)
    for stage in account.stages:
        if stage.name == "delivered":
            result.add_row("notices due", f"{due:,}", end_section=False)
        result.add_row(
            stage.name,
            f"{stage.messages:,}",
            *(_count(len(ids)) for ids in (stage.lost, stage.duplicated, stage.unexpected)),
            _count(len(stage.early)) if stage.name in ("delivered", "audited") else "",
            f"{rates[stage.name]:,.0f}" if stage.name in rates else "",
        )
    return result


def crossings(account: Reconciliation, copies: Copies, flights: Mapping[str, int]) -> Table:
    """Return a table of the messages that crossed the links of a federated run, one row per airport.

    Args:
        account: the result of ``reconcile``.
        copies: all messages on both sides of the links.
        flights: the number of flights by airport.
    """
    result = Table(title="What crossed the links", title_justify="left")
    for heading in ("airport", "flights", "published", "crossed", "lost", "duplicated", "repeated"):
        result.add_column(heading, justify="left" if heading == "airport" else "right", no_wrap=True)
    crossed = next(stage for stage in account.stages if stage.name == "crossed")
    for airport, count in flights.items():
        sides = [[flight_id for flight_id, _ in side] for side in (copies.published, copies.crossed)]
        faults = (crossed.lost, crossed.duplicated)
        result.add_row(
            airport,
            f"{count:,}",
            *(f"{_leaving(side, airport):,}" for side in sides),
            *(_count(_leaving(ids, airport)) for ids in faults),
            f"{_leaving(crossed.repeated, airport):,}",
        )
    return result


def write_samples(path: Path, samples: Sequence[AirportSample]) -> None:
    """Write the states of the airports during the run, a JSON object per line."""
    path.write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))


def federation(airports: Airports) -> dict[str, object]:
    """Return the links' and outages' facts, for JSON."""
    return {
        "links": {airport: asdict(link) for airport, link in airports.links.items()},
        "outages": [
            {
                "airport": outage.airport,
                "began": outage.begun,
                "began_s": outage.began_s,
                "ended_s": outage.ended_s,
                "caught_up_s": outage.caught_up_s,
                "waiting": outage.waiting,
            }
            for outage in airports.outages
        ],
    }


def _leaving(flight_ids: Sequence[str], airport: str) -> int:
    """Return how many of these flights leave there."""
    return sum(flight_id.endswith(f"-{airport}") for flight_id in flight_ids)


def _count(faults: int) -> str:
    return f"[bold red]{faults:,}[/]" if faults else "[green]0[/]"


def write(
    path: Path, account: Reconciliation, due: int, rates: Mapping[str, float], facts: Mapping[str, object]
) -> None:
    """Write the account as JSON.

    Args:
        path: of the file.
        account: the result of ``reconcile``.
        due: the number of due notices.
        rates: messages per second, by stage.
        facts: more top-level fields.
    """
    stages = {
        stage.name: {
            "messages": stage.messages,
            "lost": list(stage.lost),
            "duplicated": list(stage.duplicated),
            "unexpected": list(stage.unexpected),
            "early": list(stage.early),
            "repeated": list(stage.repeated),
            "per_second": round(rates[stage.name]) if stage.name in rates else None,
        }
        for stage in account.stages
    }
    document = {"adds_up": account.adds_up, "notices_due": due, "stages": stages, **facts}
    path.write_text(json.dumps(document, indent=2, default=str) + "\n")
