"""Federation links: both brokers have the same ones, each to one of its own virtual hosts, and report them alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .pair import Broker, Pair, node

EXCHANGE = "fed.x"
UPSTREAM = "up"
CLOSED = 1  # a port on which no process listens
LINKS = {"broken": "error", "good": "running", "missing": "error", "wrong": "error"}
WAITS = {"reconnect-delay": 1}


@pytest.fixture
def upstream(both: Pair, vhost: str) -> Iterator[str]:
    """The upstream virtual host on each broker."""
    name = f"{vhost}-up"
    both.put(f"/api/vhosts/{name}")
    yield name
    for api in both.apis:
        api.call("DELETE", f"/api/vhosts/{name}")


@pytest.fixture
def federated(both: Pair, brokers: list[Broker], vhost: str, upstream: str) -> str:
    """A virtual host with an exchange that has four links, of which one works."""
    for api, broker in zip(both.apis, brokers, strict=True):
        address = broker.url.rpartition("@")[2].partition("/")[0]
        uris = {
            "good": f"amqp://guest:guest@{address}/{upstream}",
            "broken": f"amqp://guest:guest@127.0.0.1:{CLOSED}/{upstream}",
            "missing": f"amqp://guest:guest@{address}/nowhere",
            "wrong": f"amqp://guest:secret@{address}/{upstream}",
        }
        for name, uri in uris.items():
            exchange = {"broken": "elsewhere", "wrong": "other"}.get(name)
            value = {"uri": uri, **WAITS} | ({"exchange": exchange} if exchange else {})
            path = f"/api/parameters/federation-upstream/{vhost}/{name}"
            assert api.call("PUT", path, {"value": value}).status == 201
    both.put(f"/api/exchanges/{vhost}/{EXCHANGE}", {"type": "topic"})
    both.put(f"/api/queues/{vhost}/q", {"durable": True})
    both.post(f"/api/bindings/{vhost}/e/{EXCHANGE}/q/q", {"routing_key": "a.#"}, 201)
    policy = {"pattern": "^fed", "definition": {"federation-upstream-set": "all"}, "apply-to": "exchanges"}
    both.put(f"/api/policies/{vhost}/p", policy)
    return vhost


def settled(items: list[dict[str, Any]]) -> bool:
    """Return whether each link has its final state, and the working link has a channel."""
    states = {item["upstream"]: item["status"] for item in items if item["upstream"]}
    return states == LINKS and all("local_channel" in item for item in items if item["status"] == "running")


def test_what_is_told_of_links(both: Pair, federated: str, upstream: str) -> None:
    answers = both.get(f"/api/federation-links/{federated}", until=settled, patient=True)
    for answer in answers.live:
        text = answer.content.decode()
        assert "guest:" not in text
        assert "secret" not in text
        good = next(item for item in answer.json if item["upstream"] == "good")
        assert (good["upstream_exchange"], good["exchange"], good["type"]) == (EXCHANGE, EXCHANGE, "exchange")
        assert len(good["id"]) == 8
    both.get(f"/api/federation-links/{federated}/state/down", until=lambda items: len(items) == 3)
    both.get(f"/api/federation-links/{upstream}")
    down = [item["vhost"] for item in both.subject.call("GET", "/api/federation-links/state/down/").json]
    assert down.count(federated) == 3
    both.get(f"/api/federation-links/{federated}?columns=upstream,vhost&sort=upstream&sort_reverse=true")


def test_a_link_is_restarted(both: Pair, federated: str) -> None:
    names = [node(api) for api in both.apis]
    answers = both.get(f"/api/federation-links/{federated}", until=settled, patient=True)
    ids = [next(item["id"] for item in answer.json if item["upstream"] == "good") for answer in answers.live]
    below = f"/api/federation-links/vhost/{federated}"
    paths = [f"{below}/{id}/{name}/restart" for id, name in zip(ids, names, strict=True)]
    both.call("DELETE", paths[0], status=204, subject_path=paths[-1])
    both.get(f"/api/federation-links/{federated}", until=settled, patient=True)
    both.call("OPTIONS", paths[0], status=200, subject_path=paths[-1])
    for path in (
        "{below}/00000000/{name}/restart",
        "{below}/{id}/no@where/restart",
        "/api/federation-links/vhost/nowhere/{id}/{name}/restart",
    ):
        paths = [path.format(below=below, id=id, name=name) for id, name in zip(ids, names, strict=True)]
        both.call("DELETE", paths[0], status=404, subject_path=paths[-1])


def test_the_connections_of_a_link(both: Pair, federated: str, upstream: str) -> None:
    mine = both.get(f"/api/vhosts/{federated}/connections", until=lambda items: len(items) == 1, patient=True)
    for answer in mine.live:
        (connection,) = answer.json
        assert (connection["type"], connection["protocol"]) == ("direct", "Direct 0-9-1")
        assert connection["client_properties"]["connection_name"] == "Federation link (upstream: good, policy: p)"
    for api in both.apis:
        (connection,) = api.call("GET", f"/api/vhosts/{upstream}/connections").json
        assert connection["user_provided_name"] == "Federation link (upstream: good, policy: p)"
        assert (connection["type"], connection["user"]) == ("network", "guest")


def test_what_the_upstream_has(both: Pair, federated: str, upstream: str) -> None:
    """Except for cluster names, everything is the same: arguments, types, users."""
    both.get(f"/api/federation-links/{federated}", until=settled, patient=True)
    both.get("/api/overview", select=lambda overview: [
        kind for kind in overview["exchange_types"] if kind["name"] == "x-federation-upstream"
    ])  # fmt: skip
    for noun in ("queues", "exchanges", "bindings"):
        both.get(f"/api/{noun}/{upstream}", select=plain)


def plain(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a link has made, without cluster names."""
    made = []
    for item in items:
        names = [item.get(name, "") for name in ("name", "source", "destination")]
        if any(name.startswith("federation: ") for name in names) and item.get("source") != "":
            arguments = {
                name: "X" if name == "x-downstream-name" else value for name, value in item["arguments"].items()
            }
            for bound in arguments.get("x-bound-from", []):
                bound |= {"cluster-name": "X", "exchange": bound["exchange"][:-2]}  # A or B: they alternate
            made.append({
                "arguments": arguments,
                **{name: item.get(name) for name in ("type", "durable", "auto_delete", "internal", "routing_key")},
            })  # fmt: skip
    return sorted(made, key=str)


def test_credentials_are_shown_where_they_are_set(both: Pair, vhost: str) -> None:
    """Users who may set them see them, as in RabbitMQ, so that exported definitions can be imported again."""
    path = f"/api/parameters/federation-upstream/{vhost}/u"
    both.put(path, {"value": {"uri": "amqp://user:secret@localhost:1"}})
    both.get(path, exact=True)
    both.get(f"/api/definitions/{vhost}", select=lambda definitions: definitions["parameters"])
    both.delete(path)
