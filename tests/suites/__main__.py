"""Runs clients' own test suites against leveret, or against RabbitMQ, and compares with the baseline.

    python -m tests.suites                        all suites; writes docs/reference/conformance.md
    python -m tests.suites kombu amqplib          these suites
    python -m tests.suites --fast                 the part in `make test`: fetches nothing, no retries
    python -m tests.suites --fast --fetch         only fetches what it needs
    python -m tests.suites --tests '*ack*'        tests by pattern
    python -m tests.suites --broker rabbitmq --update
    python -m tests.suites --transport kombu celery   on leveret's kombu transport in the place of py-amqp's

Exit status 1 if a test that should pass did not, 2 if a suite could not be run.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from leveret.testing.processes import ProcessFailed

from . import report
from .baseline import Baseline
from .broker import LEVERET, OFFERS
from .certificates import provider
from .installation import Installation, InstallationFailed
from .outcome import Outcome
from .run import Run, on_transport
from .suite import Suite


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="*", help="names of suites; all if none is given")
    parser.add_argument("--broker", choices=sorted(OFFERS), default=LEVERET)
    parser.add_argument("--tests", action="append", default=[], metavar="PATTERN", help="* stands for anything")
    parser.add_argument("--fast", action="store_true", help="the part that belongs to `make test`")
    parser.add_argument("--fetch", action="store_true", help="fetch the suites, and run nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many suites run at the same time")
    parser.add_argument("--transport", action="store_true", help="kombu or celery on leveret's kombu transport")
    parser.add_argument("--update", action="store_true", help="add the verdicts to the baseline")
    return parser.parse_args()


def runs(options: argparse.Namespace) -> Iterator[Run]:
    """Return the runs that the options ask for."""
    suites = {suite.name: suite for suite in Suite.load()}
    if unknown := [name for name in options.suite if name not in suites]:
        sys.exit(f"there is no suite {unknown[0]}; there are {', '.join(suites)}")
    for name, suite in suites.items():
        if options.suite and name not in options.suite:
            continue
        if options.fast and not suite.fast:
            continue
        chosen = on_transport(suite) if options.transport else suite
        run = Run(chosen, options.broker, suite.fast if options.fast else options.tests)
        if any(map(run.wants, Baseline.load(suite).tests)):
            yield run


def main() -> None:
    options = arguments()
    if options.update and options.broker == LEVERET:
        sys.exit("the baseline is what RabbitMQ does: --update needs --broker rabbitmq")
    if options.transport and (options.update or not {"kombu", "celery"}.issuperset(options.suite or [""])):
        sys.exit("--transport needs the names of suites, kombu or celery, and excludes --update")
    wanted = list(runs(options))
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            if options.fetch or not options.fast:
                needed = {suite.name: suite for suite in (provider(), *(run.suite for run in wanted))}
                list(pool.map(Installation.fetched, needed.values()))
            if options.fetch:
                return
            outcomes = list(pool.map(lambda run: one_run(run, options), wanted))
        except (InstallationFailed, ProcessFailed) as error:
            print(error, file=sys.stderr)
            sys.exit(2)
    print("\n".join(report.table(outcomes)))
    if options.broker == LEVERET and not options.tests and not options.fast and not options.transport:
        write_document()
    sys.exit(1 if any(outcome.problems for outcome in outcomes) and not options.update else 0)


def one_run(run: Run, options: argparse.Namespace) -> Outcome:
    """Run a suite, and print at once what went wrong."""
    outcome = Outcome.of(run, tries_again=not options.fast)
    if options.update:
        baseline = Baseline.load(run.suite)
        for verdicts in outcome.attempts:
            baseline = baseline.updated(verdicts)
        baseline.save()
    if not run.select and not options.transport:
        outcome.keep()
    told = [f"{outcome.suite}: {outcome.passed} passed, {outcome.seconds:.0f} s", *report.lines(outcome)]
    print("\n".join(told), file=sys.stderr, flush=True)
    return outcome


def write_document() -> None:
    """Write docs/reference/conformance.md, if each suite has had a complete run here."""
    last = [Outcome.last(suite.name, suite.version, LEVERET) for suite in Suite.load()]
    outcomes: Sequence[Outcome] = [outcome for outcome in last if outcome is not None]
    if len(outcomes) == len(last):
        report.DOCUMENT.write_text(report.document(outcomes))


if __name__ == "__main__":
    main()
