"""``leveret demo`` and the Python function for it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from leveret.demo.errors import DemoError
from leveret.demo.plan import ALL_FLIGHTS, DEFAULT_OUTPUT, FAULTS
from leveret.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from leveret.demo.account.reconcile import Reconciliation


def run(
    flights: int = ALL_FLIGHTS,
    *,
    url: str | None = None,
    seed: int = 0,
    output: Path | str = DEFAULT_OUTPUT,
    faults: Sequence[str] = (),
    federated: bool = False,
    cluster: bool = False,
) -> Reconciliation:
    """Run the demo and print its progress.

    Args:
        flights: their number, 1 to 336,776; fewer than all are a random sample.
        url: of a running broker (leveret or RabbitMQ); by default the demo starts one.
        seed: of the sample.
        output: directory for the results; created, or cleared of the results of an earlier run.
        faults: faults to inject, members of ``leveret.demo.plan.FAULTS``: for tests.
        federated: each airport has a broker of its own, upstream of the pipeline's broker.
        cluster: the flights arrive in a partitioned stream, which the demo's own Spark cluster reads; one of its
            executors is killed, and at the end the brokers' records are audited. Needs ``federated``.

    Returns:
        The account by message ids; the command's exit status depends on its ``adds_up``.

    Raises:
        PipelineError: a requirement is missing (then a ``DemoError``), or a part of the pipeline failed.
    """
    if federated and url is not None:
        raise DemoError("a federated run starts all four brokers itself, because it kills one: it takes no URL")
    if cluster and not federated:
        raise DemoError("a run on a cluster reads from the airports' brokers: it must be federated")
    try:
        from leveret.demo.show import Show
    except ImportError as error:
        raise DemoError(f"the demo needs more packages ({error}): pip install 'leveret[demo]'") from error
    place = Path(output)
    return Show(flights, url, seed, place, tuple(faults), federated=federated, cluster=cluster).run()


def _terminated(_number: int, _frame: FrameType | None) -> None:
    # an exception unwinds the context managers that stop broker, Spark and the other processes
    sys.exit(128 + signal.SIGTERM)


@click.command(name="demo")
@click.option("--url", metavar="URL", help="Use this broker (leveret or RabbitMQ) instead of starting one.")
@click.option(
    "--flights",
    type=click.IntRange(1, ALL_FLIGHTS),
    default=ALL_FLIGHTS,
    show_default=True,
    help="How many flights; fewer than all are a random sample.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random sample.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
    help="Directory for the results.",
)
@click.option("--federated", is_flag=True, help="A broker at each airport, linked to one where the pipeline runs.")
@click.option("--cluster", is_flag=True, help="With --federated: streams, a Spark cluster, and an audit at the end.")
@click.option("--inject", "faults", type=click.Choice(FAULTS), multiple=True, hidden=True)
def command(
    url: str | None, flights: int, seed: int, output: Path, federated: bool, cluster: bool, faults: tuple[str, ...]
) -> None:
    """Send the flights of 2013 through broker, Spark and delay levels, and account for every message.

    Exits with 0 if all adds up, with 1 if a message was lost, duplicated or early, or if a part failed.
    """
    if federated and url is not None:
        raise click.UsageError("--federated can't be used with --url: it starts four brokers and kills one of them")
    if cluster and not federated:
        raise click.UsageError("--cluster needs --federated: the airports' brokers fill its streams")
    signal.signal(signal.SIGTERM, _terminated)
    try:
        account = run(flights, url=url, seed=seed, output=output, faults=faults, federated=federated, cluster=cluster)
    except PipelineError as error:
        raise click.ClickException(str(error)) from error
    if not account.adds_up:
        sys.exit(1)
