"""Permissions: which ones each method needs, and the error if one of them is missing.

Each method is tried with exactly the permissions that it needs, and with all of them but one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from .administration import Administration
from .raw import METHODS, Frame, RawClient

CONFIGURE, WRITE, READ = "configure", "write", "read"
Need = tuple[str, str]  # the permission, and the queue or exchange that it is for
REPLY_TO = "amq.rabbitmq.reply-to"
DEFAULT = "amq.default"


@dataclass
class Place:
    """A separate virtual host with a queue q, and a user without permissions in it.

    The exchange topic has that type; x, y and internal are fanout exchanges.
    """

    administration: Administration
    url: str
    name: str

    @property
    def user(self) -> str:
        return self.name

    def url_of(self, user: str, password: str) -> str:
        parts = urlsplit(self.url)
        return f"amqp://{user}:{password}@{parts.hostname}:{parts.port}/{self.name}"

    def connect(self) -> RawClient:
        """Open a new connection of the user: RabbitMQ's channels cache permissions."""
        return RawClient.open(self.url_of(self.user, "secret"))

    def permit(self, *needs: Need) -> None:
        """Give the user these permissions and no others."""
        patterns = dict.fromkeys((CONFIGURE, WRITE, READ), "")
        for action in patterns:
            names = [name.replace(".", "\\.") for what, name in needs if what == action]
            patterns[action] = f"^({'|'.join(names)})$" if names else ""
        self.administration.call("set_permissions", user=self.user, vhost=self.name, **patterns)

    def permit_topics(self, write: str, read: str, exchange: str = "topic") -> None:
        self.administration.call(
            "set_topic_permissions", user=self.user, vhost=self.name, exchange=exchange, write=write, read=read)

    def refusal(self, name: str, what: str) -> tuple[int, str, int, int]:
        class_id, method_id, _ = METHODS[name]
        text = f"ACCESS_REFUSED - access to {what} in vhost '{self.name}' refused for user '{self.user}'"
        return 403, text, class_id, method_id


@pytest.fixture
def place(url: str, administration: Administration, unique: str) -> Iterator[Place]:
    administration.call("add_vhost", name=unique, creator="guest")
    administration.call("add_user", name=unique, password="secret", tags=[])
    made = Place(administration, url, unique)
    with RawClient.open(made.url_of("guest", "guest")) as guest:
        guest.call("queue.declare", queue="q")
        guest.call("exchange.declare", exchange="topic", type="topic")
        for name in ("x", "y"):
            guest.call("exchange.declare", exchange=name, type="fanout")
        guest.call("exchange.declare", exchange="internal", type="fanout", internal=True)
    try:
        yield made
    finally:
        administration.call("delete_user", name=unique)
        administration.call("delete_vhost", name=unique)


def do(client: RawClient, name: str, args: dict[str, Any]) -> Frame:
    """Send a method and return its answer; for a publish, return the answer to a request after it."""
    if name == "basic.publish":
        client.publish(b"", **args)
        client.send("basic.qos")
    else:
        client.send(name, 1, **args)
    return client.read()


def kind_of(name: str) -> str:
    return "queue" if name in ("q", "new", "gone") else "exchange"


# method, arguments, and the permissions that it needs in the order in which they are checked
CASES: list[tuple[str, dict[str, Any], list[Need]]] = [
    ("queue.declare", {"queue": "q", "passive": True}, []),
    ("queue.declare", {"queue": REPLY_TO}, []),
    ("queue.declare", {"queue": "q"}, [(CONFIGURE, "q")]),
    ("queue.declare", {"queue": "new"}, [(CONFIGURE, "new")]),
    (
        "queue.declare",
        {"queue": "new", "arguments": {"x-dead-letter-exchange": "x"}},
        [(CONFIGURE, "new"), (READ, "new"), (WRITE, "x")],
    ),
    (
        "queue.declare",
        {"queue": "new", "arguments": {"x-dead-letter-exchange": ""}},
        [(CONFIGURE, "new"), (READ, "new"), (WRITE, DEFAULT)],
    ),
    ("queue.delete", {"queue": "q"}, [(CONFIGURE, "q")]),
    ("queue.delete", {"queue": "gone"}, [(CONFIGURE, "gone")]),
    ("queue.purge", {"queue": "q"}, [(READ, "q")]),
    ("queue.bind", {"queue": "q", "exchange": "x"}, [(WRITE, "q"), (READ, "x")]),
    ("queue.unbind", {"queue": "q", "exchange": "x"}, [(WRITE, "q"), (READ, "x")]),
    ("queue.unbind", {"queue": "gone", "exchange": "x"}, [(WRITE, "gone"), (READ, "x")]),
    ("exchange.declare", {"exchange": "x", "passive": True}, []),
    ("exchange.declare", {"exchange": "x", "type": "fanout"}, [(CONFIGURE, "x")]),
    ("exchange.declare", {"exchange": "newx", "type": "fanout"}, [(CONFIGURE, "newx")]),
    (
        "exchange.declare",
        {"exchange": "newx", "type": "fanout", "arguments": {"alternate-exchange": "y"}},
        [(CONFIGURE, "newx"), (READ, "newx"), (WRITE, "y")],
    ),
    ("exchange.delete", {"exchange": "x"}, [(CONFIGURE, "x")]),
    ("exchange.delete", {"exchange": "gonex"}, [(CONFIGURE, "gonex")]),
    ("exchange.bind", {"destination": "x", "source": "y"}, [(WRITE, "x"), (READ, "y")]),
    ("exchange.unbind", {"destination": "x", "source": "y"}, [(WRITE, "x"), (READ, "y")]),
    ("basic.publish", {"exchange": "x"}, [(WRITE, "x")]),
    ("basic.publish", {"exchange": "", "routing_key": "q"}, [(WRITE, DEFAULT)]),
    ("basic.publish", {"exchange": "topic", "routing_key": "k"}, [(WRITE, "topic")]),
    ("basic.consume", {"queue": "q"}, [(READ, "q")]),
    ("basic.consume", {"queue": REPLY_TO, "no_ack": True}, []),
    ("basic.get", {"queue": "q"}, [(READ, "q")]),
]


def _id(case: tuple[str, dict[str, Any], list[Need]]) -> str:
    return f"{case[0]}-{'-'.join(str(value) for value in case[1].values())}"


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_it_needs_these_permissions_and_no_others(place: Place, case: tuple[str, dict[str, Any], list[Need]]) -> None:
    name, args, needs = case
    place.permit(*needs)
    with place.connect() as client:
        answer = do(client, name, args)
        assert answer.name in ("basic.qos-ok", f"{name}-ok", "basic.get-empty"), answer


@pytest.mark.parametrize(
    ("case", "missing"),
    [(case, number) for case in CASES for number in range(len(case[2]))],
    ids=lambda each: str(each) if isinstance(each, int) else _id(each),
)
def test_without_one_of_them_it_is_refused(
    place: Place, case: tuple[str, dict[str, Any], list[Need]], missing: int
) -> None:
    name, args, needs = case
    place.permit(*needs[:missing], *needs[missing + 1 :])
    with place.connect() as client:
        answer = do(client, name, args)
        assert answer.name == "channel.close", answer
        lacking = needs[missing][1]
        assert answer.error == place.refusal(name, f"{kind_of(lacking)} '{lacking}'")


@pytest.mark.parametrize("case", [case for case in CASES if case[2]], ids=_id)
def test_the_first_of_several_is_told(place: Place, case: tuple[str, dict[str, Any], list[Need]]) -> None:
    name, args, needs = case
    place.permit()
    with place.connect() as client:
        first = needs[0][1]
        assert do(client, name, args).error == place.refusal(name, f"{kind_of(first)} '{first}'")


# other errors that are reported before a missing permission
EARLIER: list[tuple[str, dict[str, Any], int]] = [
    ("queue.declare", {"queue": "gone", "passive": True}, 404),
    ("queue.declare", {"queue": "amq.new"}, 403),
    ("queue.declare", {"queue": "", "durable": True, "arguments": {"x-queue-type": "quorum"}}, 406),
    ("queue.delete", {"queue": ""}, 404),
    ("queue.purge", {"queue": ""}, 404),
    ("exchange.declare", {"exchange": "gone", "passive": True}, 404),
    ("exchange.declare", {"exchange": "", "type": "fanout"}, 403),
    ("exchange.delete", {"exchange": ""}, 403),
    ("exchange.delete", {"exchange": "amq.direct"}, 403),
]
# other errors that are not reported if a permission is missing
LATER: list[tuple[str, dict[str, Any], str]] = [
    ("queue.declare", {"queue": "q", "durable": True, "arguments": {"x-expires": -1}}, "queue 'q'"),
    ("queue.purge", {"queue": "gone"}, "queue 'gone'"),
    ("queue.bind", {"queue": "gone", "exchange": "gonex"}, "queue 'gone'"),
    ("queue.bind", {"queue": "q", "exchange": ""}, "queue 'q'"),
    ("queue.unbind", {"queue": "q", "exchange": ""}, "queue 'q'"),
    ("exchange.declare", {"exchange": "amq.new", "type": "fanout"}, "exchange 'amq.new'"),
    ("exchange.declare", {"exchange": "x", "type": "direct"}, "exchange 'x'"),
    ("exchange.bind", {"destination": "gonex", "source": "goney"}, "exchange 'gonex'"),
    ("exchange.bind", {"destination": "", "source": "x"}, f"exchange '{DEFAULT}'"),
    ("exchange.bind", {"destination": "x", "source": ""}, "exchange 'x'"),
    ("exchange.unbind", {"destination": "x", "source": ""}, "exchange 'x'"),
    ("basic.publish", {"exchange": "gonex"}, "exchange 'gonex'"),
    ("basic.publish", {"exchange": "internal"}, "exchange 'internal'"),
    ("basic.publish", {"exchange": "x", "user_id": "somebody"}, "exchange 'x'"),
    ("basic.consume", {"queue": "gone"}, "queue 'gone'"),
    ("basic.get", {"queue": "gone"}, "queue 'gone'"),
]


@pytest.mark.parametrize(("name", "args", "code"), EARLIER)
def test_mistakes_that_are_told_before(place: Place, name: str, args: dict[str, Any], code: int) -> None:
    place.permit()
    with place.connect() as client:
        error = do(client, name, args).error
        assert error[0] == code
        assert f"refused for user '{place.user}'" not in error[1]


@pytest.mark.parametrize(("name", "args", "what"), LATER)
def test_who_may_not_is_not_told_of_other_mistakes(place: Place, name: str, args: dict[str, Any], what: str) -> None:
    place.permit()
    with place.connect() as client:
        assert do(client, name, args).error == place.refusal(name, what)


def test_a_name_that_the_broker_makes_must_be_permitted_too(place: Place) -> None:
    place.administration.call(
        "set_permissions", user=place.user, vhost=place.name, configure="^amq\\.gen-.*$", write="", read="")
    with place.connect() as client:
        assert client.call("queue.declare", queue="")["queue"].startswith("amq.gen-")
    place.permit((CONFIGURE, "q"))
    with place.connect() as client:
        error = do(client, "queue.declare", {"queue": ""}).error
        made = error[1].split("'")[1]
        assert made.startswith("amq.gen-")
        assert error == place.refusal("queue.declare", f"queue '{made}'")


def test_a_pattern_matches_anywhere_in_a_name(place: Place) -> None:
    place.administration.call("set_permissions", user=place.user, vhost=place.name, configure="b", write="", read="")
    with place.connect() as client:
        client.call("queue.declare", queue="abc")
        assert do(client, "queue.declare", {"queue": "ac"}).name == "channel.close"


# -- topic permissions -------------------------------------------------------------------------------------------------

TOPIC_NEEDS: list[Need] = [(WRITE, "topic"), (READ, "topic"), (WRITE, "q"), (WRITE, "x")]
TOPIC_CASES: list[tuple[str, dict[str, Any]]] = [
    ("basic.publish", {"exchange": "topic"}),
    ("queue.bind", {"queue": "q", "exchange": "topic"}),
    ("queue.unbind", {"queue": "q", "exchange": "topic"}),
    ("exchange.bind", {"destination": "x", "source": "topic"}),
    ("exchange.unbind", {"destination": "x", "source": "topic"}),
]


@pytest.mark.parametrize(("name", "args"), TOPIC_CASES)
def test_topic_permissions_are_about_routing_keys(place: Place, name: str, args: dict[str, Any]) -> None:
    place.permit(*TOPIC_NEEDS)
    patterns = ("^ok$", "") if name == "basic.publish" else ("", "^ok$")
    place.permit_topics(*patterns)
    with place.connect() as client:
        assert do(client, name, {**args, "routing_key": "ok"}).name in (f"{name}-ok", "basic.qos-ok")
        what = "topic 'other' in exchange 'topic'"
        assert do(client, name, {**args, "routing_key": "other"}).error == place.refusal(name, what)


def test_an_empty_topic_permission_is_about_the_empty_key(place: Place) -> None:
    place.permit(*TOPIC_NEEDS)
    place.permit_topics("", "")
    with place.connect() as client:
        assert do(client, "basic.publish", {"exchange": "topic", "routing_key": ""}).name == "basic.qos-ok"
        what = "topic 'a' in exchange 'topic'"
        refusal = place.refusal("basic.publish", what)
        assert do(client, "basic.publish", {"exchange": "topic", "routing_key": "a"}).error == refusal


def test_topic_permissions_know_user_and_virtual_host(place: Place) -> None:
    place.permit(*TOPIC_NEEDS)
    place.permit_topics("^{username}\\.{vhost}\\.{client_id}$", "")
    with place.connect() as client:
        key = f"{place.user}.{place.name}.{{client_id}}"  # AMQP 0-9-1 has no {client_id}, so it stays as it is
        assert do(client, "basic.publish", {"exchange": "topic", "routing_key": key}).name == "basic.qos-ok"
        assert do(client, "basic.publish", {"exchange": "topic", "routing_key": "u.v.c"}).name == "channel.close"


def test_topic_permissions_say_nothing_of_other_exchanges(place: Place) -> None:
    place.permit((WRITE, "x"), (WRITE, "amq.topic"))
    for exchange in ("x", "topic"):
        place.permit_topics("^never$", "^never$", exchange)
    with place.connect() as client:
        for exchange in ("x", "amq.topic"):
            assert do(client, "basic.publish", {"exchange": exchange, "routing_key": "k"}).name == "basic.qos-ok"


def test_the_queue_of_an_empty_name_is_the_topic_of_an_empty_key(place: Place) -> None:
    place.permit((CONFIGURE, "q"), *TOPIC_NEEDS)
    place.permit_topics("", "^never$")
    with place.connect() as client:
        client.call("queue.declare", queue="q")
        what = "topic 'q' in exchange 'topic'"
        assert do(client, "queue.bind", {"exchange": "topic"}).error == place.refusal("queue.bind", what)


def test_publishes_with_many_keys_are_each_looked_at(place: Place) -> None:
    place.permit(*TOPIC_NEEDS)
    place.permit_topics("^ok\\.", "")
    with place.connect() as client:
        for number in range(100):
            client.publish(b"", "topic", f"ok.{number % 10}")
        client.call("basic.qos")
        client.publish(b"", "topic", "ok.1")
        refusal = place.refusal("basic.publish", "topic 'no.1' in exchange 'topic'")
        assert do(client, "basic.publish", {"exchange": "topic", "routing_key": "no.1"}).error == refusal


# -- direct reply-to ---------------------------------------------------------------------------------------------------


def test_a_reply_needs_to_write_to_the_default_exchange_only(place: Place) -> None:
    place.permit((WRITE, DEFAULT))
    with place.connect() as client:
        client.call("basic.consume", queue=REPLY_TO, no_ack=True)
        client.publish(b"question", "", "q", reply_to=REPLY_TO)
        with RawClient.open(place.url_of("guest", "guest")) as guest:
            name = guest.call("basic.get", queue="q", no_ack=True).properties["reply_to"]
        client.publish(b"answer", "", name)
        assert client.read("basic.deliver").body == b"answer"


# -- changes while connections are open --------------------------------------------------------------------------------


def test_what_is_granted_may_be_done_at_once(place: Place) -> None:
    place.permit()
    with place.connect() as client:
        for name, args, needs in [("basic.publish", {"exchange": "x"}, [(WRITE, "x")]), CASES[-1]]:
            assert do(client, name, args).name == "channel.close"
            client.send("channel.close-ok")
            client.call("channel.open")
            place.permit(*needs)
            assert do(client, name, args).name in ("basic.qos-ok", "basic.get-empty")


def test_what_is_revoked_may_not_be_done_on_a_new_channel(place: Place) -> None:
    place.permit((WRITE, "x"))
    with place.connect() as client:
        assert do(client, "basic.publish", {"exchange": "x"}).name == "basic.qos-ok"
        place.permit()
        client.call("channel.close")
        client.call("channel.open")
        refusal = place.refusal("basic.publish", "exchange 'x'")
        assert do(client, "basic.publish", {"exchange": "x"}).error == refusal


@pytest.mark.parametrize("topics", [False, True])
def test_what_is_revoked_may_not_be_done_on_the_same_channel(
    place: Place, raw: RawClient, topics: bool, on_rabbitmq: bool
) -> None:
    """RabbitMQ's channels cache up to 12 permissions for as long as they are busy; leveret's do not."""
    place.administration.call("set_permissions", user=place.user, vhost=place.name, configure="", write=".*", read="")
    with place.connect() as client:
        with RawClient.open(place.url_of("guest", "guest")) as guest:  # guest's routes are cached in the same place
            assert do(guest, "basic.publish", {"exchange": "topic", "routing_key": "k"}).name == "basic.qos-ok"
            assert do(client, "basic.publish", {"exchange": "topic", "routing_key": "k"}).name == "basic.qos-ok"
            if topics:
                place.permit_topics("^other$", "")
            else:
                place.permit()
            assert do(guest, "basic.publish", {"exchange": "topic", "routing_key": "k"}).name == "basic.qos-ok"
        answer = do(client, "basic.publish", {"exchange": "topic", "routing_key": "k"})
        assert answer.name == ("basic.qos-ok" if on_rabbitmq else "channel.close")


def test_an_exchange_that_comes_back_as_another_type_is_looked_at_anew(place: Place) -> None:
    place.permit((CONFIGURE, "z"), (WRITE, "z"))
    place.permit_topics("^ok$", "", "z")
    publish = {"exchange": "z", "routing_key": "other"}
    with place.connect() as client:
        client.call("exchange.declare", exchange="z", type="direct")
        assert do(client, "basic.publish", publish).name == "basic.qos-ok"
        client.call("exchange.delete", exchange="z")
        client.call("exchange.declare", exchange="z", type="topic")
        refusal = place.refusal("basic.publish", "topic 'other' in exchange 'z'")
        assert do(client, "basic.publish", publish).error == refusal
