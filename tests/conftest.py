"""Fixtures that all tests share: one broker of ours for the whole run, on a free port with a directory of its own."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from leveret.testing.postgresql import PostgreSQLProcess
from leveret.testing.processes import LeveretProcess, RabbitMQProcess

# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile("leveret", deadline=None)
settings.load_profile("leveret")

TESTS = Path(__file__).parent
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
def rabbitmq() -> Iterator[str]:
    """The URL of a private RabbitMQ node. Where RabbitMQ is missing the tests fail: they would prove nothing."""
    if RabbitMQProcess.program() is None:
        pytest.fail("RabbitMQ is not installed: apt-get install rabbitmq-server", pytrace=False)
    with RabbitMQProcess() as node:
        yield node.url


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a private PostgreSQL. Where it is missing the tests fail: they would prove nothing."""
    if PostgreSQLProcess.program("initdb") is None:
        pytest.fail("PostgreSQL is not installed: apt-get install postgresql", pytrace=False)
    with PostgreSQLProcess() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database: an SQLite file of the test's own, then the run's PostgreSQL (use names of your own)."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/timeouts.sqlite"
    return str(request.getfixturevalue("postgresql"))


class Scheduling(LoadFileScheduling):
    """A worker takes all tests of a file, or of all files that share a Spark session: another one would cost more."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if _shares_browser(path):
            return "web"
        if not _shares_session(path):
            return path
        return "pipelines" if "/pipelines/" in path else "spark"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first: one that began last would be waited for by all other processes."""
    order = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: -1 if _is_shared(str(item.path)) else order.get(item.path, len(order)))


def _is_shared(path: str) -> bool:
    """Whether it stands in one group with other files, which takes longer than any file."""
    return _shares_session(path) or _shares_browser(path)


def _shares_browser(path: str) -> bool:
    return "tests/web/" in path


def _shares_session(path: str) -> bool:
    return "tests/spark/" in path and path.endswith("_query.py")


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
