"""leveret bench: how fast a broker is, or two in turns.

Exit codes: 0 measured; 1 the measurement failed; 2 wrong options, or no connection; 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from typing import Any, Final

import click

from leveret.cli.bench import machine
from leveret.cli.bench.job import BenchJob
from leveret.cli.bench.load import Figures, LoadFailed, measured
from leveret.cli.bench.scenarios import SCENARIOS, Scenario
from leveret.cli.bench.show import at, medians, show
from leveret.cli.terminal import fail
from leveret.cli.urls import URL_DEFAULT, url_of
from leveret.client import BlockingConnection, ClientError
from leveret.client.protocol.url import parse_url

EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2
EXIT_INTERRUPTED: Final = 130
SIZE_MIN: Final = 16
SIZE_MAX: Final = 16 << 20


@click.command(epilog=" ".join(f"{name}: {scenario.help}." for name, scenario in SCENARIOS.items()))
@click.argument("scenario", type=click.Choice(list(SCENARIOS)))
@click.argument("url", type=url_of, metavar="[URL]", default=URL_DEFAULT, envvar="LEVERET_URL")
@click.option("--against", type=url_of, metavar="URL", help="Compare with a second broker: rounds alternate "
                                                             "between the two.")
@click.option("--size", type=click.IntRange(SIZE_MIN, SIZE_MAX), help="Message body size in bytes.  [default: 16]")
@click.option("--duration-s", type=click.FloatRange(0.1, 3600), help="Length of the measurement, after a warm-up of "
                                                                     "0.5 s.  [default: 3]")
@click.option("--messages", type=click.IntRange(1), help="Total number of messages, in place of a duration.")
@click.option(
    "--publishers", type=click.IntRange(1, 64), help="Number of publisher (or requester) processes.  [default: 1]"
)
@click.option("--consumers", type=click.IntRange(1, 64), help="Number of consumer processes.  [default: 1]")
@click.option("--queues", type=click.IntRange(1, 10_000), help="Number of queues, used in turn.  [default: 1]")
@click.option("--persistent", is_flag=True, default=None, help="Use durable queues and persistent messages.")
@click.option("--confirm", type=click.IntRange(0), help="Use confirms, with at most this many outstanding; 0: no "
                                                        "confirms.  [default: 0]")
@click.option(
    "--prefetch", type=click.IntRange(0, 65535), help="Use acknowledgements, with this prefetch; 0: no "
                                                      "acknowledgements.  [default: 0]"
)
@click.option(
    "--rate", type=click.IntRange(0), help="Total messages per second; 0: no limit.  [default: 0]"
)
@click.option("--window", type=click.IntRange(1), help="rpc: maximum number of outstanding requests.  [default: 50]")
@click.option("--delay-s", type=click.FloatRange(0.001, 3600), help="delay: the longest delay.  [default: 2]")
@click.option("--rounds", type=click.IntRange(1, 100), help="Number of rounds; the medians are reported.  [default: "
                                                            "1; 3 with --against]")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, with the figures of every round.")
def command(scenario: str, url: str, against: str | None, rounds: int | None, is_json: bool, **chosen: Any) -> None:
    """Measure how fast the broker at URL is; with --against, compare two brokers.

    SCENARIO is one of those below. All queues and exchanges that it declares are deleted at the end, also after Ctrl-C.
    Exit codes: 0 measured, 1 not finished, 2 wrong options or no connection, 130 Ctrl-C.
    """
    what = SCENARIOS[scenario]
    urls = [url, *([against] if against else [])]
    try:
        names = _names(urls)
        jobs = [_job(what, one, chosen) for one in urls]
        found = _rounds(what, dict(zip(names, jobs, strict=True)), rounds or (3 if against else 1), is_json)
    except KeyboardInterrupt:
        fail(EXIT_INTERRUPTED, "stopped; all declared queues and exchanges were deleted")
    except LoadFailed as error:
        fail(EXIT_FAILED, str(error))
    except (ClientError, OSError) as error:
        fail(EXIT_UNUSABLE, str(error))
    if is_json:
        click.echo(json.dumps(_document(scenario, what, jobs[0], found), indent=2, ensure_ascii=False))
    else:
        show(scenario, what, found, machine.described(), _settings(what, jobs[0]))


def _job(scenario: Scenario, url: str, chosen: dict[str, Any]) -> BenchJob:
    """Combine the scenario's defaults with the chosen options. Raises click.UsageError for a contradiction."""
    given = {name: value for name, value in chosen.items() if value is not None}
    values = scenario.defaults | given
    if "duration_s" in given and "messages" not in given:
        values.pop("messages", None)
    job = BenchJob(url, f"leveret-bench-{secrets.token_hex(4)}", **values)
    if "messages" in given and "duration_s" in given:
        raise click.UsageError("--messages and --duration-s exclude each other")
    if scenario.is_paired:  # one queue for each pair
        job = dataclasses.replace(job, queues=job.publishers, consumers=job.publishers)
    elif job.queues > max(job.publishers, job.consumers) or (scenario.receiver and job.consumers < job.queues):
        raise click.UsageError(f"{job.queues} queues need at least {job.queues} consumers: --consumers {job.queues}")
    return job


def _rounds(scenario: Scenario, jobs: dict[str, BenchJob], rounds: int, is_quiet: bool) -> dict[str, list[Figures]]:
    """Measure all brokers alternately (A B, A B, …), so that disturbances of the machine affect both."""
    found: dict[str, list[Figures]] = {name: [] for name in jobs}
    for turn in range(1, rounds + 1):
        for name, job in jobs.items():
            figures = measured(scenario, job)
            found[name].append(figures)
            if not is_quiet and (rounds > 1 or len(jobs) > 1):
                click.echo(f"{turn}/{rounds} {name}: {at(figures, scenario.figure):,.0f} {scenario.figure}", err=True)
    return found


def _names(urls: list[str]) -> list[str]:
    """Return the brokers' names and versions, with host and port if these are equal."""
    said = []
    for url in urls:
        with BlockingConnection(url, name="leveret bench", reconnect=False) as connection:
            properties = connection.server_properties
        product, own = str(properties.get("product", "unknown")), properties.get("leveret_version")
        said.append(f"leveret {own!s}" if own else " ".join((product, str(properties.get("version", "")))))
    if len(set(said)) < len(said):
        said = [f"{name} at {parse_url(url).host}:{parse_url(url).port}" for name, url in zip(said, urls, strict=True)]
    return said if len(set(said)) == len(said) else [f"{name} ({number})" for number, name in enumerate(said, 1)]


def _settings(scenario: Scenario, job: BenchJob) -> str:
    """Describe the settings that the scenario uses."""
    words = [f"{job.size} bytes", "persistent" if job.persistent else "transient"]
    words += [f"{job.messages:,} messages" if job.messages else f"{job.duration_s:g} s"]
    counts = [(job.publishers, scenario.sender), (job.consumers if scenario.receiver else 0, scenario.receiver)]
    words += [_count(number, role) for number, role in [*counts, (job.queues, "queue")] if number]
    if scenario.sender == "publisher":
        words += [f"{job.confirm:,} unconfirmed" if job.confirm else "no confirms"]
        words += [f"prefetch {job.prefetch:,}" if job.prefetch else "no acknowledgements"] if scenario.receiver else []
    words += [f"{job.rate:,} messages/s"] if job.rate else []
    words += [f"{job.window:,} outstanding"] if scenario.sender == "requester" else []
    words += [f"delays up to {job.delay_s:g} s"] if scenario.sender == "delayer" else []
    return ", ".join(words)


def _count(number: int, role: str) -> str:
    noun = {"delayer": "publisher", "late_consumer": "consumer"}.get(role, role)
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _document(name: str, scenario: Scenario, job: BenchJob, found: dict[str, list[Figures]]) -> dict[str, Any]:
    settings = {key: value for key, value in dataclasses.asdict(job).items() if key not in ("url", "name")}
    middle = {broker: medians(rounds) for broker, rounds in found.items()}
    values = [at(figures, scenario.figure) for figures in middle.values()]
    return {
        "scenario": name,
        "settings": settings,
        "machine": machine.described(),
        "figure": scenario.figure,
        "brokers": [{"name": broker, "median": middle[broker], "rounds": rounds} for broker, rounds in found.items()],
        "ratio": values[0] / values[1] if len(values) > 1 and values[1] else None,
    }
