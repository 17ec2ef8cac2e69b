"""One broker, one worker and one client application for all tests that can share them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from celery import Celery

from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess

from ..raw import RawClient
from .app import APPLICATIONS
from .desk import Desk
from .processes import Worker

Start = Callable[..., Worker]


@pytest.fixture(
    scope="session", autouse=True, params=["amqp", pytest.param("leveret", marks=pytest.mark.needs("minutes"))]
)
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """All tests run with py-amqp, and then with leveret's transport."""
    scheme = str(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEVERET_CELERY_TRANSPORT", scheme)
        yield scheme


@pytest.fixture(scope="session")
def broker_url(transport: str) -> Iterator[str]:
    """LEVERET_TEST_URL, or the URL of a leveret for Celery alone, because default settings use fixed queue names."""
    given = os.environ.get("LEVERET_TEST_URL")
    if given:
        yield given
        return
    with LeveretProcess() as process:
        yield process.url


@pytest.fixture
def mortal(broker_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker of the kind under test for one test, which may kill it and start it again with the same data."""
    with RawClient.open(broker_url) as client:
        is_rabbitmq = str(client.server_properties["version"]).startswith("3.10.")
    kind = RabbitMQProcess if is_rabbitmq else LeveretProcess
    with kind(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="session")
def app(broker_url: str) -> Iterator[Celery]:
    """The client side of the stock application."""
    app = APPLICATIONS["stock"](broker_url)
    yield app
    app.close()


@pytest.fixture(scope="session")
def worker(app: Celery, broker_url: str) -> Iterator[Worker]:
    """A stock worker with two processes."""
    with Worker("stock", broker_url, "shared", "--concurrency", "2") as process:
        yield process
        process.idle(app)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


@pytest.fixture
def client() -> Iterator[Callable[[str, str], Celery]]:
    """Makes client applications, from a name and a broker's URL."""
    with ExitStack() as stack:

        def make(name: str, url: str) -> Celery:
            app = APPLICATIONS[name](url)
            stack.callback(app.close)
            return app

        yield make
