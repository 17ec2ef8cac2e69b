"""leveret top: live view of a broker's queues, connections, channels, links and streams.

Reads from the broker of a data directory on this machine, or from the HTTP API of leveret or RabbitMQ.
"""

from __future__ import annotations

import importlib.util
import json
import shutil

import click

from leveret.cli.data_dir import default_data_dir
from leveret.cli.top.printing import everything, once
from leveret.cli.top.sources import HttpSampleSource, SampleRequest, SampleSource, SocketSource, Unreachable
from leveret.cli.top.views import VIEWS, column_of

INTERVAL_MS = 2000
INTERVAL_MS_MIN = 100


@click.command(name="top", help=__doc__)
@click.option("--url", envvar="LEVERET_API_URL", help="URL of the HTTP API, such as "
                                                      "http://guest:guest@localhost:15672.")
@click.option(
    "--data-dir", help="Data directory of a broker on this machine.  [default: $LEVERET_DATA_DIR, else "
                       "~/.local/share/leveret]"
)
@click.option("--view", type=click.Choice(list(VIEWS)), default="queues", show_default=True, help="View to open first.")
@click.option("--sort", help="Sort by the column with this title.")
@click.option("--filter", "text", default="", help="Show only names that contain this text.")
@click.option(
    "--interval-ms", type=click.IntRange(INTERVAL_MS_MIN), default=INTERVAL_MS, show_default=True,
    help="Seconds between updates.",
)  # fmt: skip
@click.option("--once", "is_once", is_flag=True, help="Print one view as text and exit.")
@click.option("--json", "is_json", is_flag=True, help="Print all data once as JSON and exit.")
def command(
    url: str | None, data_dir: str | None, view: str, sort: str | None, text: str, interval_ms: int, is_once: bool,
    is_json: bool,
) -> None:  # fmt: skip
    question = SampleRequest(VIEWS[view], sort or VIEWS[view].sort, False, text)
    if column_of(question.view, question.sort) is None:
        titles = ", ".join(column.title for column in question.view.columns)
        raise click.UsageError(f"--sort: {view} have no column {question.sort!r}; columns: {titles}")
    source = _source(url, data_dir)
    try:
        if is_json:
            click.echo(json.dumps(everything(source, text), ensure_ascii=False))
        elif is_once:
            click.echo(once(source, question, shutil.get_terminal_size((120, 40)).columns))
        else:
            _run(source, interval_ms, question)
    except Unreachable as error:
        raise click.ClickException(str(error)) from None
    finally:
        source.close()


def _source(url: str | None, data_dir: str | None) -> SampleSource:
    if url is not None and data_dir is not None:
        raise click.UsageError("--url and --data-dir exclude each other: give only one")
    if url is None:
        return SocketSource(data_dir or default_data_dir())
    try:
        return HttpSampleSource(url)
    except ValueError as error:
        raise click.UsageError(f"--url: {error}") from None


def _run(source: SampleSource, interval_ms: int, question: SampleRequest) -> None:
    if importlib.util.find_spec("textual") is None:
        reason = "the live view needs textual: pip install 'leveret[top]'; --once and --json work without it"
        raise click.UsageError(reason)
    from leveret.cli.top.app import Top

    Top(source, interval_ms, question).run()
