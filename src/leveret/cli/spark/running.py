"""The common parts of all pipeline commands: options, session, progress, summary, exit codes.

Exit codes: 0 done; 1 done, but the figures do not add up; 2 wrong options; 3 failed, the text says why; 130 and 143
after a second Ctrl-C or SIGTERM. The first one lets the pipeline finish its current work.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from leveret.cli.options import options
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leveret.pipelines.reporter import Reporter

EXIT_AMISS: Final = 1
EXIT_FAILED: Final = 3

OPTIONS: Final = (
    click.option("--master", help="Spark's master: local[4], spark://host:7077, yarn, k8s://…  [default: local[*]]"),
    click.option(
        "--remote", envvar="SPARK_REMOTE", help="Spark Connect server, sc://host:15002, in place of a master."
    ),
    click.option("--conf", "conf", multiple=True, metavar="NAME=VALUE", help="Spark setting; may be repeated."),
    click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
)

Job = Callable[["SparkSession", "Reporter", bool], Summary]
"""What a command runs; called with session, reporter, and whether it is a dry run."""


@dataclass(frozen=True)
class Running:
    """The values of ``OPTIONS`` for one run of a pipeline."""

    name: str
    master: str | None
    remote: str | None
    conf: tuple[str, ...]
    dry_run: bool
    as_json: bool

    def run(self, job: Job, url: str | None = None) -> None:
        """Run the job in a session, show its progress, and print its summary. Exits unless the status is 0.

        url: the broker to which the job's queries report their progress; None = they do not.
        """
        from leveret.cli.spark.telling import Teller

        settings = self._settings()
        log = Path(tempfile.gettempdir()) / f"leveret-spark-{os.getuid()}-{os.getpid()}.log"
        try:
            from pyspark.errors import PySparkException

            from leveret.pipelines.engine import started
            from leveret.spark import report_queries
        except ImportError as error:
            raise click.UsageError(f"pipelines need more packages ({error}): pip install 'leveret[spark]'") from None
        try:
            with Teller(self.name) as teller, started(f"leveret {self.name}", log, **settings) as spark:
                listener = None if url is None else report_queries(spark, url)
                summary = job(spark, teller, self.dry_run)
                if listener is not None:
                    spark.streams.removeListener(listener)  # otherwise a Connect client warns when it stops
        except (PipelineError, PySparkException) as error:
            click.echo(f"Error: {error if isinstance(error, PipelineError) else cause(error)}", err=True)
            _say_where(log)
            sys.exit(EXIT_FAILED)
        log.unlink(missing_ok=True)
        if self.as_json:
            click.echo(json.dumps(summary.document(), indent=2))
        else:
            teller.tell(summary)
        if not summary.adds_up:
            sys.exit(EXIT_AMISS)

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = pairs("--conf", self.conf)
        if self.master and self.remote:
            raise click.UsageError("--master and --remote exclude each other")
        if self.master:
            settings["spark.master"] = self.master
        if self.remote:
            settings["remote"] = self.remote
        return settings


def pipeline(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``OPTIONS`` to a command's function, which gets their values as its first argument, ``running``."""

    @options(*OPTIONS)
    @functools.wraps(function)
    def called(
        master: str | None, remote: str | None, conf: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any
    ) -> None:
        name = click.get_current_context().info_name or ""
        function(Running(name, master, remote, conf, dry_run, as_json), **given)

    return called


def pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse the values NAME=VALUE of an option. Raises click.UsageError."""
    found = {}
    for text in texts:
        name, is_there, value = text.partition("=")
        if not is_there or not name:
            raise click.UsageError(f"{option} {text}: write NAME=VALUE")
        found[name] = value
    return found


def _say_where(log: Path) -> None:
    """Print the path of Spark's log if that is not empty."""
    if log.exists() and log.stat().st_size:
        click.echo(f"Spark's output is in {log}", err=True)
