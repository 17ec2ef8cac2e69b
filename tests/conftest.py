"""Fixtures that all tests share: one broker of ours for the whole run, on a free port with a directory of its own."""

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from psycopg import sql
from xdist.scheduler import LoadFileScheduling

from leveret.testing.processes import LeveretProcess
from tests import peer_selection
from tests.shared import SharedServers, alone, shared, virtual_host

# How long an example takes says something about the machine, and nothing about the code. Examples are the same in every
# run, so that a run says something about what has changed; `make soak` asks for others, by --hypothesis-seed.
settings.register_profile("others", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("others"), derandomize=True, database=None)
# for whoever asks only whether a test fails, as tools/mutants.py does
settings.register_profile("unshrunk", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("same")

TESTS = Path(__file__).parent
OWN = os.environ.get("PYTEST_XDIST_WORKER", "alone")
"""This process's own virtual host, or database, on servers that all processes of the run share."""
# What takes more than a minute.
LONGEST = (
    "interop/differential/test_differential.py",
    "demo/test_run.py",
    "demo/test_cluster_run.py",
    "spark/test_kills.py",
    "suites/test_suites.py",
)

# Erlang's schedulers spin before they sleep; a dozen RabbitMQ nodes that do nothing would take half a processor.
os.environ.setdefault("ERL_AFLAGS", "+sbwt none +sbwtdcpu none +sbwtdio none")

# A broker that a test starts has no HTTP API, unless the test asks for one: there is only one default port.
os.environ["LEVERET_ADMIN_PORT"] = "0"


@pytest.fixture(scope="session")
def leveret_process() -> Iterator[LeveretProcess]:
    """A running ``leveret serve``; at the end it must stop by SIGTERM with exit status 0."""
    with LeveretProcess() as process:
        yield process


@pytest.fixture(scope="session")
def broker(leveret_process: LeveretProcess) -> str:
    """The URL of the run's own leveret. Tests share it: they use names of their own."""
    return leveret_process.url


@pytest.fixture(scope="session")
def rabbitmq_api() -> str:
    """The address of the HTTP API of the run's RabbitMQ."""
    return str(shared("rabbitmq")["api"])


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[str]:
    """The URL of the run's RabbitMQ, with a virtual host that no other process uses. Tests use names of their own."""
    with virtual_host(OWN) as url:
        yield url


@pytest.fixture(scope="session")
def postgresql() -> str:
    """The URL of the run's PostgreSQL, with a database that no other process uses. Tests use names of their own."""
    url = str(shared("postgresql")["url"])
    # PostgreSQL makes one database at a time
    with alone("postgresql"), psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(OWN)))
    return url.removesuffix("postgres") + OWN


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database: an SQLite file of the test's own, then the run's PostgreSQL (use names of your own)."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/timeouts.sqlite"
    return str(request.getfixturevalue("postgresql"))


# Files that one process runs one after another, by where they lie: they share a Spark session, a browser, or brokers.
GROUPS = (
    (re.compile(r"tests/web/"), "web"),
    (re.compile(r"tests/interop/federation/"), "federation"),
    (re.compile(r"tests/conformance/http/"), "http"),
    (re.compile(r"tests/spark/pipelines/.*_query\.py$"), "pipelines"),
    (re.compile(r"tests/spark/.*_query\.py$"), "spark"),
)


def group(path: str) -> str:
    """The name of the group that a file belongs to, or ""."""
    return next((name for pattern, name in GROUPS if pattern.search(path)), "")


class Scheduling(LoadFileScheduling):
    """A worker takes all tests of a file, or of a group of files."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return group(path) or path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    peer_selection.pytest_configure(config)
    if config.getoption("hypothesis_seed", None) is not None and config.getoption("hypothesis_profile", None) is None:
        settings.load_profile("others")
    if not hasattr(config, "workerinput"):
        config.add_cleanup(SharedServers().end)
        config.pluginmanager.register(Failures(config), "failures")


class Failures:
    """Names a test that failed when it fails: a whole run takes minutes until pytest shows why."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            reason = str(getattr(report.longrepr, "reprcrash", None) or "").partition("\n")[0]
            self._config.get_terminal_writer().line(f" {report.when} of {report.nodeid} failed: {reason[:200]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups and the longest files come first: one that began last would be waited for by all other processes."""
    order = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: -1 if group(item.path.as_posix()) else order.get(item.path, len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a test says may hold texts that are no Unicode: the whole run would end where they can't be passed on."""
    return _as_unicode((yield))


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(key): _as_unicode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_as_unicode(item) for item in value)
    return value
