"""One run of a suite, or of some of its tests, against a broker of its own."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from . import verdicts
from .broker import OFFERS, Broker, running
from .certificates import certificates, provide
from .installation import Installation
from .suite import Suite, matches
from .verdicts import Verdict

__all__ = ["Run", "on_transport"]

TARGET: Final = Path(__file__).with_name("target")
SOURCE: Final = Path(__file__).parents[2] / "src"
FOREIGN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "LEVERET_")
"""Prefixes of environment variables that would mislead a suite."""


def on_transport(suite: Suite) -> Suite:
    """Return a suite of kombu's or Celery's with leveret's kombu transport in the place of py-amqp's."""
    return replace(
        suite,
        arguments=[*suite.arguments, "-p", "leveret_transport"],
        environment={**suite.environment, "PYTHONPATH": f"{TARGET}:{SOURCE}"},
    )


@dataclass(frozen=True)
class Run:
    """What to run.

    Attributes:
        suite: The suite.
        kind: The broker, LEVERET or RABBITMQ.
        select: Patterns of tests; all if empty.
    """

    suite: Suite
    kind: str
    select: Sequence[str] = ()

    @property
    def offers(self) -> frozenset[str]:
        """What the broker offers besides plain AMQP."""
        return OFFERS[self.kind]

    def wants(self, test: str) -> bool:
        """Whether the test is selected."""
        return not self.select or any(matches(pattern, test) for pattern in self.select)

    def verdicts(self) -> dict[str, Verdict]:
        """Start the broker, run the tests, and return the verdict of each test that ran.

        Raises:
            InstallationFailed: The suite cannot be fetched or installed.
            ProcessFailed: The broker does not start, or did not stop as it should.
            AssertionError: The broker wrote a traceback.
        """
        installation = Installation.of(self.suite)
        has_tls = "tls" in self.offers
        if has_tls and self.suite.certificates:
            provide(installation.source / self.suite.certificates)
        trusted = certificates() if has_tls else Path()
        with (
            running(self.kind, self.suite.services, trusted) as broker,
            tempfile.TemporaryDirectory(prefix="leveret-suite-") as directory,
        ):
            report = Path(directory) / "report.xml"
            environment = self.environment(broker, installation, trusted)
            found: dict[str, Verdict] = {}
            for command, path in self.commands(installation, report):
                report.unlink(missing_ok=True)
                self.call(command, environment, installation)
                if self.suite.registry == "npm":
                    found |= verdicts.from_node(report, path)
                else:
                    found |= verdicts.from_pytest(report, installation.source)
            assert not broker.complaints, broker.complaints
        return {test: verdict for test, verdict in found.items() if self.wants(test)}

    def commands(self, installation: Installation, report: Path) -> Iterator[tuple[list[str], str]]:
        """Yield the commands of the run with a name: one for each file with node, a single one with pytest."""
        suite = self.suite
        if suite.registry == "npm":
            options = [f"--test-timeout={1000 * suite.test_timeout_s}"]
            options += ["--test-reporter=junit", f"--test-reporter-destination={report}"]
            for path in suite.paths:
                yield ["node", "--test", *options, path], path
        else:
            options = ["--rootdir", ".", "-p", "broker_target", "-p", "no:cacheprovider"]
            options += ["--timeout", str(suite.test_timeout_s), "--junitxml", str(report), *suite.arguments]
            yield [str(installation.binaries / "python"), "-m", "pytest", *options, *suite.paths], ""

    def environment(self, broker: Broker, installation: Installation, trusted: Path) -> Mapping[str, str]:
        """Return the environment variables of the suite's process."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        left_out = [pattern for rule in self.suite.left_out(self.offers) for pattern in rule.tests]
        fill = {"certificates": str(trusted), **broker.ports}
        return own | {
            "PATH": f"{installation.binaries}:{own.get('PATH', '')}",
            "PYTHONPATH": str(TARGET),
            "NODE_OPTIONS": f"--require {TARGET / 'port_map.cjs'}",
            "BROKER_5672": str(broker.ports["port"]),
            "BROKER_5671": str(broker.ports["tls_port"]),
            "BROKER_15672": str(broker.ports["http_port"]),
            "BROKER_SWITCH": str(broker.ports["switch_port"]),
            "BROKER_SELECT": "\n".join(self.select),
            "BROKER_DESELECT": "\n".join(left_out),
            **{name: value.format_map(fill) for name, value in self.suite.environment.items()},
        }

    def call(self, command: Sequence[str], environment: Mapping[str, str], installation: Installation) -> None:
        """Run a command of the suite until it ends or times out; its output goes to output.log."""
        with (installation.source.parent / "output.log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=installation.source,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(self.suite.timeout_s)
            except subprocess.TimeoutExpired:
                log.write(f"\nended after {self.suite.timeout_s} s\n")
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # kills the suite's child processes, too
                except ProcessLookupError:
                    pass
                process.wait()
