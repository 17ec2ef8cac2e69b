"""Flower's broker page: a web application often run beside Celery, unpatched, on the HTTP API of either broker."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator

import httpx
import pytest
from celery import Celery

from leveret.testing.processes import ServerProcess

from ...no_tls import NO_TLS
from ...waiting import DEADLINE_S, until
from .api import Api
from .conftest import within
from .pair import Broker


class Flower(ServerProcess):
    """A Flower process; `port` is that of its web page."""

    name = "flower"
    ready_pattern = re.compile(r"Registered tasks|Connected to amqp")
    start_timeout_s = 60.0

    def __init__(self, broker_url: str, api_url: str) -> None:
        super().__init__()
        self._arguments = ["--broker", broker_url, "flower", f"--port={self.port}", "--address=127.0.0.1"]
        self._arguments.append(f"--broker-api={api_url.replace('http://', 'http://guest:guest@')}/api/")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "celery", *self._arguments]


@pytest.fixture(params=[pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq")), "subject"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Either of the two brokers."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Broker)
    return found


@pytest.fixture
def flower(broker: Broker, unique: str) -> Iterator[Flower]:
    """A Flower for a new virtual host, in which three tasks wait in the queue "celery"."""
    api = Api(broker.api)
    assert api.call("PUT", f"/api/vhosts/{unique}").status == 201
    url = within(broker, unique)
    with Celery(broker=url) as app:
        for number in range(3):
            app.send_task("none", (number,))
    with Flower(url, broker.api) as process:
        yield process
    api.call("DELETE", f"/api/vhosts/{unique}")
    api.close()


def rows(page: str) -> list[list[str]]:
    """Return the cells of each row of the page's tables."""
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.S)]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in found if row]


def test_the_broker_page_lists_the_queues(flower: Flower) -> None:
    # name, messages, unacknowledged, ready, consumers
    wanted = ["celery", "3", "0", "3", "0"]

    def shown() -> list[list[str]]:
        page = httpx.get(f"http://127.0.0.1:{flower.port}/broker", timeout=DEADLINE_S, trust_env=False, verify=NO_TLS)
        return [row[:5] for row in rows(page.text)]

    until(lambda: wanted in shown(), lambda: f"{shown()}\n{flower.output}")
