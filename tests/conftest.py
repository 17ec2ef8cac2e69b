"""Fixtures that all tests share, such as one leveret for the whole run, on a free port with its own data directory."""

import gc
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

# How long an example takes depends on the machine and not on the code, so there is no deadline. Examples are the same
# in every run, so that a new failure points to a change of the code; `make soak` asks for other examples, by
# --hypothesis-seed.
settings.register_profile("others", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("others"), derandomize=True, database=None)
# for callers that only need to know whether a test fails, such as tools/mutants.py
settings.register_profile("unshrunk", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("same")

TESTS = Path(__file__).parent
OWN = os.environ.get("PYTEST_XDIST_WORKER", "alone")
"""The name of this process's own virtual host or database on the servers that all processes of the run share."""
# tests that take more than a minute
LONGEST = (
    "interop/differential/test_differential.py",
    "demo/test_run.py",
    "demo/test_cluster_run.py",
    "spark/test_kills.py",
    "suites/test_suites.py",
)

# Erlang's schedulers spin before they sleep; a dozen idle RabbitMQ nodes would take half a processor.
os.environ.setdefault("ERL_AFLAGS", "+sbwt none +sbwtdcpu none +sbwtdio none")

# A broker that a test starts has no HTTP API unless the test asks for one, because there is only one default port.
os.environ["LEVERET_ADMIN_PORT"] = "0"


@pytest.fixture(scope="session")
def leveret_process() -> Iterator[LeveretProcess]:
    """A running ``leveret serve``; at the end of the run it must stop by SIGTERM with exit status 0."""
    with LeveretProcess() as process:
        yield process


@pytest.fixture(scope="session")
def broker(leveret_process: LeveretProcess) -> str:
    """The URL of the run's leveret. All tests share it, so they must use unique names."""
    return leveret_process.url


@pytest.fixture(scope="session")
def rabbitmq_api() -> str:
    return str(shared("rabbitmq")["api"])


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[str]:
    """The URL of the run's RabbitMQ, with a virtual host of this process. Tests share it: use unique names."""
    with virtual_host(OWN) as url:
        yield url


@pytest.fixture(scope="session")
def postgresql() -> str:
    """The URL of the run's PostgreSQL, with a database of this process. Tests share it: use unique names."""
    url = str(shared("postgresql")["url"])
    # PostgreSQL creates one database at a time
    with alone("postgresql"), psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(OWN)))
    return url.removesuffix("postgres") + OWN


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database: first an SQLite file of this test, then the run's PostgreSQL (use unique names)."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/timeouts.sqlite"
    return str(request.getfixturevalue("postgresql"))


# Groups of files that one process runs one after another, by path, because they share a Spark session, a browser or
# brokers.
GROUPS = (
    (re.compile(r"tests/web/"), "web"),
    (re.compile(r"tests/interop/federation/"), "federation"),
    (re.compile(r"tests/conformance/http/"), "http"),
    (re.compile(r"tests/spark/pipelines/.*_query\.py$"), "pipelines"),
    (re.compile(r"tests/spark/.*_query\.py$"), "spark"),
)


def group(path: str) -> str:
    """Return the name of the group that a file belongs to, or ""."""
    return next((name for pattern, name in GROUPS if pattern.search(path)), "")


class Scheduling(LoadFileScheduling):
    """Gives one worker all tests of a file or of a group of files."""

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
    """Prints the name of a test as soon as it fails, because pytest shows details only at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            reason = str(getattr(report.longrepr, "reprcrash", None) or "").partition("\n")[0]
            self._config.get_terminal_writer().line(f" {report.when} of {report.nodeid} failed: {reason[:200]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put groups and the longest files first; if one of them started last, all other processes would wait for it."""
    order = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: -1 if group(item.path.as_posix()) else order.get(item.path, len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Set aside what exists before the first test, in the garbage collector's permanent generation.

    Modules and collected tests are hundreds of thousands of objects, and none of them is garbage. Otherwise each full
    collection, and each `gc.get_objects` of a test that counts what is left over, looks at all of them, which takes
    longer than the test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Replace text in reports that is not valid Unicode: xdist cannot pass it on, and would end the run."""
    return _as_unicode((yield))


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(key): _as_unicode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_as_unicode(item) for item in value)
    return value
