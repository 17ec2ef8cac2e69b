"""pytest plugin: a broker for each test that asks for one (docs/guides/testing.md).

Fixtures: `leveret_broker`, a new broker for each test; `amqp_url`, its URL as a plain str; `leveret_session_broker`,
one broker for the whole run (per worker with pytest-xdist). The marker `leveret` passes options to
`leveret.testing.broker`:

    @pytest.mark.leveret(clock=VirtualClock(), consumer_timeout_ms=60_000)

The report of a failed test describes the state of its broker. pytest loads this plugin in every run, so it imports
nothing before it is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leveret.testing import LiveBroker

FIXTURES = ("leveret_broker", "leveret_session_broker")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "leveret(**options): options of leveret.testing.broker for this test's broker")


@pytest.fixture
def leveret_broker(request: pytest.FixtureRequest) -> Iterator[LiveBroker]:
    """A new broker for this test. The value is its URL, a str."""
    from leveret.testing import broker

    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("leveret"))):
        options |= marker.kwargs
    with broker(**options) as live:
        yield live


@pytest.fixture(scope="session")
def leveret_session_broker() -> Iterator[LiveBroker]:
    """One broker for all tests of the run; they should use distinct names, or `forget()`."""
    from leveret.testing import broker

    with broker() as live:
        yield live


@pytest.fixture
def amqp_url(leveret_broker: LiveBroker) -> str:
    """The URL of this test's broker."""
    return leveret_broker.url


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.when == "call":
        arguments: dict[str, Any] = getattr(item, "funcargs", {})
        for name in FIXTURES:
            if name in arguments:
                report.sections.append((f"leveret: {name}", arguments[name].report()))
    return report
