"""Pages, sorting, columns and filters of the lists."""

from __future__ import annotations

import pytest

from ...waiting import until
from .pair import Pair
from .test_queues import complete

COUNT = 12


@pytest.fixture(scope="module")
def place() -> str:
    """The name of a virtual host that the tests of this file share."""
    return "t-listing"


@pytest.fixture(autouse=True)
def queues(both: Pair, place: str) -> None:
    """Twelve queues of three kinds, declared once on both brokers, with RabbitMQ's statistics of all of them."""
    for api in both.apis:
        if api.call("PUT", f"/api/vhosts/{place}").status == 201:
            for number in range(COUNT):
                arguments = {"x-expires": 2**30 + number}
                body = {"durable": number % 3 == 0, "auto_delete": number % 4 == 0, "arguments": arguments}
                name = ("alpha", "beta", "Gamma")[number % 3] + f"-{number}"
                assert api.call("PUT", f"/api/queues/{place}/{name}", body).status == 201
            listed = f"/api/queues/{place}"
            until(lambda api=api, listed=listed: sum(map(complete, api.call("GET", listed).json)) == COUNT)


QUERIES = [
    "page=1", "page=1&page_size=5", "page=2&page_size=5", "page=3&page_size=5", "page=4&page_size=5", "page=0",
    "page=-1", "page=x", "page=", "page=1&page_size=0", "page=1&page_size=500", "page=1&page_size=501",
    "page=1&page_size=-1", "page=1&page_size=x", "page_size=5", "page=1&page_size=", "page=99999999999999999999",
    "page=1&name=alpha", "page=1&name=ALPHA", "page=1&name=a-1&page_size=2", "page=1&name=nothing", "name=alpha",
    "page=1&name=^a&use_regex=true", "page=1&name=^a&use_regex=false",
    "page=1&name=a$|1$&use_regex=true", "page=1&name=&use_regex=true",
    "page=1&name=%5Ea.*-[0-9]$&use_regex=true&page_size=1", "page=1&name=alpha&use_regex=nonsense",
    "sort=name", "sort=name&sort_reverse=true", "sort=name&sort_reverse=false", "sort=durable", "sort=nonsense",
    "sort=arguments.x-expires&sort_reverse=true", "sort=arguments.nonsense", "sort=", "sort_reverse=true",
    "sort=name&sort_reverse=nonsense", "sort=arguments", "page=1&sort=arguments.x-expires&page_size=3",
    "page=2&sort=name&sort_reverse=true&page_size=7", "page=1&name=a&sort=name&sort_reverse=true&columns=name",
    "columns=name", "columns=name,vhost", "columns=arguments.x-expires,name", "columns=nonsense",
    "columns=arguments", "columns=name&page=1&page_size=2", "columns=name,,vhost",
    "disable_stats=true", "enable_queue_totals=true",
    "disable_stats=true&enable_queue_totals=true", "disable_stats=true&page=1&page_size=3",
    "page=1&page_size=100&name=&use_regex=false&pagination=true", "unknown=1",
    "lengths_age=60&lengths_incr=5", "msg_rates_age=60&msg_rates_incr=5",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_lists_of_queues(both: Pair, place: str, query: str) -> None:
    answers = both.call("GET", f"/api/queues/{place}?{query}")
    if answers.rabbitmq.status == 200 and "name" in query.rsplit("columns=", maxsplit=1)[-1]:
        assert order(answers.rabbitmq.json) == order(answers.subject.json)


@pytest.mark.parametrize("noun", ["exchanges"])
@pytest.mark.parametrize("query", ["page=1&page_size=3", "sort=type&page=1", "columns=name,type", "page=1&name=amq.m"])
def test_lists_of_exchanges(both: Pair, place: str, noun: str, query: str) -> None:
    answers = both.call("GET", f"/api/{noun}/{place}?{query}")
    assert order(answers.rabbitmq.json) == order(answers.subject.json)


@pytest.mark.parametrize("noun", ["connections", "channels"])
@pytest.mark.parametrize("query", ["page=1", "page=2", "page=0", "page=1&sort=name", "page=1&columns=name"])
def test_empty_lists(both: Pair, noun: str, query: str) -> None:
    path = f"/api/{noun}?{query}&name=nothing-of-this-name"
    both.call("GET", path, select=lambda answer: answer | {"total_count": 0})


@pytest.mark.parametrize(
    "noun", ["vhosts", "users", "permissions", "topic-permissions", "policies", "parameters", "bindings", "nodes"]
)
@pytest.mark.parametrize("query", ["page=0", "page=x", "columns=nonsense", "sort=name&columns=nonsense"])
def test_other_lists(both: Pair, noun: str, query: str) -> None:
    both.call("GET", f"/api/{noun}?{query}", select=lambda answer: type(answer).__name__)


def order(answer: object) -> list[object]:
    """Return the names in an answer, a page or a list, in its order."""
    items = answer["items"] if isinstance(answer, dict) else answer
    assert isinstance(items, list)
    return [each.get("name") for each in items]
