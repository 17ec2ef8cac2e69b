"""leveret doctor: examines a running broker and explains what is wrong with it and with its clients.

Exit codes: 0 nothing as severe as --fail-on; 1 something as severe; 2 no connection, no login, or wrong options.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Final

import click
from click.core import ParameterSource

from leveret.cli.doctor.check import Check, Severity, diagnose
from leveret.cli.doctor.checks import CHECKS
from leveret.cli.doctor.observation import MONITORS, Observation, StateSample
from leveret.cli.doctor.parts import PARTS, STATISTICS
from leveret.cli.doctor.show import as_json, show, show_list
from leveret.cli.doctor.source import BrokerUnreachable, ControlSource, HttpStateSource, StateSource
from leveret.cli.terminal import fail

EXIT_FOUND: Final = 1
EXIT_UNREACHABLE: Final = 2
URL: Final = "http://guest:guest@localhost:15672"
SEVERITIES: Final = {severity.word: severity for severity in Severity}
NEVER: Final = "never"


class CheckId(click.ParamType[tuple[str, ...]]):
    """The type of --only and --ignore: ids of checks, separated by commas."""

    name = "check"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(str(value).split(","))
        for name in names:
            if name not in CHECKS:
                self.fail(f"unknown check {name!r}; `leveret doctor --list` lists all checks", param, ctx)
        return names


@click.command()
@click.option(
    "--url",
    metavar="URL",
    envvar="LEVERET_API_URL",
    help=f"URL of the HTTP API, http://user:password@host:15672 (environment: LEVERET_API_URL).  [default: {URL}]",
)
@click.option(
    "--data-dir", type=click.Path(), help="Data directory of a leveret broker on this machine, in place of --url."
)
@click.option(
    "--cacert", type=click.Path(exists=True, dir_okay=False), help="PEM file with the certificate authority for "
                                                                   "https://."
)
@click.option(
    "--watch-s",
    type=click.FloatRange(0.1, 3600),
    default=6.0,
    show_default=True,
    help="Seconds between two samples, for checks that need rates. RabbitMQ updates its statistics every 5 s.",
)
@click.option("--once", is_flag=True, help="Take a single sample and skip checks that need rates.")
@click.option(
    "--only", type=CheckId(), multiple=True, help="Run only this check; repeat, or separate with commas."
)
@click.option("--ignore", type=CheckId(), multiple=True, help="Skip this check.")
@click.option(
    "--fail-on",
    type=click.Choice([*SEVERITIES, NEVER]),
    default="warning",
    show_default=True,
    help="Exit with status 1 if a finding has at least this severity.",
)
@click.option(
    "--show", "shown", type=click.IntRange(min=1), default=3, show_default=True, help="Maximum number of objects "
                                                                                      "shown per finding."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON, with all objects.")
@click.option("--list", "is_list", is_flag=True, help="List all checks and exit.")
def command(
    url: str | None, data_dir: str | None, cacert: str | None, watch_s: float, once: bool,
    only: tuple[tuple[str, ...], ...], ignore: tuple[tuple[str, ...], ...], fail_on: str, shown: int, is_json: bool,
    is_list: bool,
) -> None:  # fmt: skip
    """Diagnose a running broker, leveret or RabbitMQ: what is wrong, why it matters, and what to do.

    Nothing is changed, declared or consumed. Exit codes: 0 no finding as severe as --fail-on, 1 at least one,
    2 no connection, no login, or wrong options.
    """
    if is_list:
        show_list()
        return
    chosen = _chosen({name for names in only for name in names}, {name for names in ignore for name in names})
    try:
        source = _source(url, data_dir, cacert)
        seen = observe(source, chosen, 0.0 if once else watch_s)
    except BrokerUnreachable as error:
        fail(EXIT_UNREACHABLE, str(error))
    diagnosis = diagnose(seen, chosen)
    if is_json:
        click.echo(as_json(diagnosis, seen, source.where))
    else:
        show(diagnosis, seen, source.where, shown)
    if fail_on != NEVER and diagnosis.worst >= SEVERITIES[fail_on]:
        sys.exit(EXIT_FOUND)


def observe(source: StateSource, checks: Iterable[Check], watch_s: float) -> Observation:
    """Fetch what the checks need: twice, `watch_s` apart, if a check needs rates and watch_s is not 0.

    Raises Unreachable if the broker can't be observed.
    """
    checks = tuple(checks)
    names = {"overview"} | {part for check in checks for part in check.needs}
    watched = {part for check in checks if check.is_watching for part in check.needs}
    counted = {name for name in watched if name in PARTS and PARTS[name].is_counted}
    before, started = None, time.monotonic()
    if watch_s and counted:
        before = StateSample.of(source, counted)
        time.sleep(watch_s)
    began, started = started, time.monotonic()
    now = StateSample.of(source, names)
    if "overview" not in now.parts or not isinstance(now.parts["overview"], dict):
        raise BrokerUnreachable(f"{source.where}: {now.missing.get('overview', 'not the HTTP API of a broker')}")
    _note_what_is_hidden(now)
    return Observation(now, before, started - began)


def _note_what_is_hidden(now: StateSample) -> None:
    """Mark parts that only look complete: statistics may be off, and users without a tag see only their own objects."""
    overview = now.parts["overview"]
    if overview.get("disable_stats") or overview.get("rates_mode") == "none":
        now.missing[STATISTICS] = "statistics are disabled on this broker (management_agent.disable_metrics_collector)"
    elif "listeners" not in overview:  # only users who may see everything are told the listeners
        wanted = " or ".join(sorted(MONITORS))
        for part in ("channels", "consumers", "connections"):
            if now.parts.pop(part, None) is not None:
                now.missing[part] = f"this user sees only its own {part}: it needs the {wanted} tag"


def _chosen(only: set[str], ignored: set[str]) -> tuple[Check, ...]:
    chosen = tuple(check for check in CHECKS.values() if (not only or check.id in only) and check.id not in ignored)
    if not chosen:
        raise click.UsageError("--only and --ignore exclude all checks")
    return chosen


def _source(url: str | None, data_dir: str | None, cacert: str | None) -> StateSource:
    if data_dir is not None:
        if click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--url and --data-dir exclude each other")
        return ControlSource(data_dir)
    try:
        return HttpStateSource(url or URL, cacert)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    except OSError as error:
        raise click.BadParameter(f"{cacert}: {error}", param_hint="--cacert") from None
