"""Bindings to queues and to exchanges, and the keys by which the API names them."""

from __future__ import annotations

import pytest

from .api import segment
from .pair import Pair


@pytest.fixture
def place(both: Pair, vhost: str) -> str:
    """A virtual host with the exchanges "e" and "f" and the queue "q"."""
    both.put(f"/api/exchanges/{vhost}/e", {"type": "headers"})
    both.put(f"/api/exchanges/{vhost}/f", {"type": "topic"})
    both.put(f"/api/queues/{vhost}/q", {})
    return vhost


@pytest.mark.parametrize("destination", ["q/q", "e/f"])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"routing_key": "key"},
        {"routing_key": "a.b/ü *#%~+"},
        {"routing_key": "~"},
        {"arguments": {"x-match": "any", "a": 1}},
        {"arguments": {"n": 1.5, "b": True, "list": [1, "x", {"y": 2}], "table": {"z": "w"}, "nothing": None}},
        {"arguments": {"big": 2**40, "negative": -1, "huge": 2**62}},
        {"routing_key": "k", "arguments": {"b": "2", "a": "1"}},
        {"routing_key": "", "arguments": {}},
        {"unknown": 1},
        None,
        b"",
    ],
    ids=repr,
)
def test_life_of_a_binding(both: Pair, place: str, destination: str, body: object) -> None:
    path = f"/api/bindings/{place}/e/e/{destination}"
    both.get(path, exact=True)
    answers = both.call("POST", path, body)
    if answers.rabbitmq.status != 201:
        return
    both.get(path, exact=True)
    both.get(f"/api/bindings/{place}", exact=True)
    both.get(f"/api/exchanges/{place}/e/bindings/source", exact=True)
    both.get(f"/api/queues/{place}/q/bindings", exact=True)
    both.get(f"/api/exchanges/{place}/f/bindings/destination", exact=True)
    # the hash in a key differs between brokers
    listed = both.get(path)
    one, other = (f"{path}/{segment(each.json[0]['properties_key'])}" for each in (listed.rabbitmq, listed.subject))
    both.get_each(one, other)
    both.call("POST", path, body)
    both.delete(one, subject_path=other)
    both.delete(one, 404, subject_path=other)
    both.get(one, 404, subject_path=other)
    both.get(path, exact=True)


@pytest.mark.parametrize(
    "body", [{"arguments": 5}, {"arguments": []}, [], "text", b"{"], ids=repr
)
def test_what_a_binding_may_not_be_made_of(both: Pair, place: str, body: object) -> None:
    both.call("POST", f"/api/bindings/{place}/e/e/q/q", body)
    both.call("GET", f"/api/bindings/{place}/e/e/q/q")


def test_unknown_ends(both: Pair, place: str) -> None:
    for ends in ("none/q/q", "e/q/none", "e/e/none", "none/e/none"):
        path = f"/api/bindings/{place}/e/{ends}"
        both.call("GET", path)
        both.call("POST", path, {"routing_key": "k"})
        both.call("GET", f"{path}/k")
        both.call("DELETE", f"{path}/k")
    both.call("GET", "/api/bindings/nowhere")
    both.call("GET", "/api/bindings/nowhere/e/e/q/q")
    both.call("POST", "/api/bindings/nowhere/e/e/q/q", {})
    both.call("GET", f"/api/bindings/{place}/e/e/x/q")
    both.call("GET", f"/api/bindings/{place}/q/q/e/e")


def test_the_default_exchange(both: Pair, place: str) -> None:
    both.get(f"/api/bindings/{place}", exact=True)
    both.call("GET", f"/api/bindings/{place}/e/amq.default/q/q")
    both.call("GET", f"/api/bindings/{place}/e/amq.default/q/q/q")
    both.call("GET", f"/api/bindings/{place}/e//q/q")
    both.call("POST", f"/api/bindings/{place}/e/amq.default/q/q", {"routing_key": "x"})
    both.call("DELETE", f"/api/bindings/{place}/e/amq.default/q/q/q")
    both.call("GET", f"/api/exchanges/{place}/amq.default/bindings/source")
    both.call("GET", f"/api/exchanges/{place}//bindings/source")


def by_arguments(bindings: list[dict[str, object]]) -> list[dict[str, object]]:
    """Sort bindings in an order that is the same for all brokers."""
    return sorted(bindings, key=lambda binding: str(binding["arguments"]))


def test_one_binding_of_several(both: Pair, place: str) -> None:
    path = f"/api/bindings/{place}/e/e/q/q"
    for number in range(3):
        both.post(path, {"routing_key": "k", "arguments": {"n": number}}, 201)
    both.post(path, {"routing_key": "k"}, 201)
    listed = both.get(path, exact=True, select=by_arguments).rabbitmq.json
    assert len(listed) == 4
    both.delete(f"{path}/k")
    both.get(path, exact=True, select=by_arguments)
    both.delete(f"/api/queues/{place}/q")
    both.get(f"/api/bindings/{place}", exact=True)
