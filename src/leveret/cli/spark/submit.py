"""leveret spark submit: prints and runs the spark-submit command for a pipeline, or a job of your own.

Exit codes: spark-submit's; 2 if the line has no job, or Spark or Java is missing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from leveret.cli.spark.group import PIPELINES
from leveret.cli.spark.zip import write_zip

JOB: Final = Path(__file__).parents[1] / "submitted" / "job.py"
WITHOUT_VALUE: Final = frozenset({"--supervise", "--verbose", "-v"})
"""Options of spark-submit without a value; all others take one."""
PY_FILES: Final = "--py-files"


@dataclass(frozen=True)
class SubmitLine:
    """A parsed command line: options of spark-submit, the job (a pipeline or a file), and the job's arguments."""

    options: tuple[str, ...]
    job: str
    arguments: tuple[str, ...]

    @staticmethod
    def parse(words: Sequence[str]) -> SubmitLine:
        """Parse the words. Raises ``click.UsageError`` if there is no job, or an unknown one."""
        place = 0
        while place < len(words) and words[place].startswith("-"):
            is_alone = words[place] in WITHOUT_VALUE or "=" in words[place]
            place += 1 if is_alone else 2
        if place >= len(words):
            raise click.UsageError(f"no job given: choose {', '.join(PIPELINES)}, or your own file.py")
        job = words[place]
        if job not in PIPELINES and not job.endswith(".py"):
            raise click.UsageError(f"{job} is neither a pipeline ({', '.join(PIPELINES)}) nor a file.py")
        return SubmitLine(tuple(words[:place]), job, tuple(words[place + 1 :]))

    def submitted(self, program: str, archive: Path) -> list[str]:
        """Return the spark-submit command; the archive is added to ``--py-files``."""
        files, others = [str(archive)], []
        rest = iter(self.options)
        for word in rest:
            if word == PY_FILES:
                files += next(rest).split(",")
            elif word.startswith(f"{PY_FILES}="):
                files += word.partition("=")[2].split(",")
            else:
                others.append(word)
        job = [str(JOB), self.job] if self.job in PIPELINES else [self.job]
        return [program, *others, PY_FILES, ",".join(files), *job, *self.arguments]


@click.command(
    "submit",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--print-only] [SPARK-SUBMIT'S OPTIONS]",
)
@click.option("--print-only", is_flag=True, help="Print the command line without running it.")
@click.option(
    "--zip", "archive", type=click.Path(dir_okay=False, path_type=Path), default=Path("leveret.zip"), show_default=True,
    help="File for the copy of leveret that executors use.",
)  # fmt: skip
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PIPELINE|FILE.py [ARGUMENTS]")
def command(print_only: bool, archive: Path, words: tuple[str, ...]) -> None:
    """Run a pipeline or your own job on a cluster with spark-submit, and print its command line.

    All options of spark-submit may stand before the job: --master, --deploy-mode, --conf, --archives and so on.
    Executors get leveret as leveret.zip; they need Python with pyarrow (docs/guides/spark/cluster.md).
    """
    line = SubmitLine.parse(words)
    said = environment(os.environ)
    program = _program(os.environ)
    full = line.submitted(program, archive)
    click.echo(" ".join([*(f"{name}={shlex.quote(value)}" for name, value in said.items()), shlex.join(full)]))
    if print_only:
        return
    try:
        write_zip(archive)
        sys.stdout.flush()
        os.execvpe(program, full, {**os.environ, **said})
    except OSError as error:
        raise click.ClickException(f"{error.filename or program}: {error.strerror}") from None


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that spark-submit needs and ``given`` lacks: a Java, and the driver's Python.

    Raises ``click.UsageError`` if there is no Java.
    """
    said = {}
    if "JAVA_HOME" not in given:
        try:
            from leveret.spark.java import java_home

            said["JAVA_HOME"] = str(java_home())
        except (ImportError, RuntimeError) as error:
            raise click.UsageError(f"{error}: pip install 'leveret[spark]' installs Java") from None
    if "PYSPARK_DRIVER_PYTHON" not in given:
        said["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if "PYSPARK_PYTHON" not in given:
        # executors use the first python3 of their PATH, Spark's default; the driver's path may be wrong on other hosts
        said["PYSPARK_PYTHON"] = "python3"
    return said


def _program(given: Mapping[str, str]) -> str:
    """Return the path of spark-submit: in SPARK_HOME, else on the PATH, else of the installed pyspark."""
    if given.get("SPARK_HOME"):
        return str(Path(given["SPARK_HOME"]) / "bin" / "spark-submit")
    found = shutil.which("spark-submit")
    if found:
        return found
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise click.UsageError("spark-submit not found: set SPARK_HOME, or pip install 'leveret[spark]'")
    return str(Path(spec.origin).parent / "bin" / "spark-submit")
