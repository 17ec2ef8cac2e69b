"""Random policies over random names: the chosen policies and their combined effect equal those of a simple model."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.storage.definitions import OPERATOR_POLICY, PARAMETER, POLICY, VHOST
from leveret.wire import grammar

from .support import Bench

QUEUE_NAMES = ("a", "ab", "b", "quorum-a", "quorum-b")
EXCHANGE_NAMES = ("a", "ab", "amq.topic")
NUMBERS = ("message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit", "max-in-memory-bytes")
OTHERS = ("overflow", "dead-letter-exchange", "alternate-exchange", "queue-mode", "queue-leader-locator", "ha-mode")
# keys of the above that RabbitMQ's queues of a type do not support
STRANGE: dict[str, set[str]] = {
    "classic": {"queue-leader-locator", "delivery-limit"}, "quorum": {"queue-mode", "ha-mode"}, "exchange": set(),
}  # fmt: skip
KINDS: dict[str, set[str]] = {
    "all": {"classic", "quorum", "exchange"}, "queues": {"classic", "quorum"}, "classic_queues": {"classic"},
    "quorum_queues": {"quorum"}, "streams": set(), "exchanges": {"exchange"},
}  # fmt: skip

numbers = st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 5), min_size=1, max_size=3)
words = st.dictionaries(st.sampled_from(OTHERS), st.sampled_from(["x", "y"]), max_size=2)


def values(definitions: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "pattern": st.sampled_from(["", "a", "^a$", "b", "-", "topic$", "nothing"]),
            "apply-to": st.sampled_from(sorted(KINDS)),
            "priority": st.integers(-1, 2),
            "definition": definitions,
        }
    )


policies = values(st.builds(lambda one, other: {**one, **other}, numbers, words))
# (is it an operator policy, name, definition; None deletes the policy)
changes = st.lists(
    st.one_of(
        st.tuples(st.just(False), st.sampled_from("pqr"), st.none() | policies),
        st.tuples(st.just(True), st.sampled_from("pqr"), st.none() | values(numbers)),
    ),
    max_size=12,
)


def chosen(there: dict[str, dict[str, Any]], kind: str, name: str) -> str:
    """Return the name of the policy that the model chooses, "" if none matches."""
    fits = [
        (-policy["priority"], each)
        for each, policy in there.items()
        if kind in KINDS[policy["apply-to"]]
        and re.search(policy["pattern"], name)
        and not STRANGE[kind] & set(policy["definition"])
    ]
    return min(fits)[1] if fits else ""


def merged(policy: dict[str, Any], operator_policy: dict[str, Any]) -> dict[str, Any]:
    both = {key: min(policy[key], operator_policy[key]) for key in set(policy) & set(operator_policy)}
    return {**policy, **operator_policy, **both}


@given(changes, st.integers(0, 12))
def test_the_effect_on_each_object_is_the_models(given_changes: list[Any], turn_after: int) -> None:
    bench = Bench()
    client, vhost, definitions = bench.connect(), bench.broker.vhosts["/"], bench.broker.definitions
    definitions.put(VHOST, {"name": "other"})
    definitions.put(POLICY, {"vhost": "other", "name": "p", "pattern": "", "definition": {"max-length": 9}})

    def declare(names: tuple[str, ...]) -> None:
        for name in names:
            arguments = {"x-queue-type": name.partition("-")[0]} if "-" in name else {}
            client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=True, arguments=arguments)

    client.send(1, grammar.EXCHANGE_DECLARE, exchange="a", type="direct")
    declare(QUEUE_NAMES[::2])
    there: dict[bool, dict[str, dict[str, Any]]] = {False: {}, True: {}}
    for index, (is_operator, name, value) in enumerate(given_changes):
        if value is None:
            there[is_operator].pop(name, None)
            key = (PARAMETER, "/", OPERATOR_POLICY, name) if is_operator else (POLICY, "/", name)
            definitions.remove(*key)
        else:
            there[is_operator][name] = value
            if is_operator:
                parameter = {"vhost": "/", "component": OPERATOR_POLICY, "name": name, "value": value}
                definitions.put(PARAMETER, parameter)  # type: ignore[arg-type]
            else:
                definitions.put(POLICY, {"vhost": "/", "name": name, **value})
        if index == turn_after:
            bench.broker.end_turn(bench.now_us)
    declare(QUEUE_NAMES[1::2])  # while the changes are not applied yet
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="ab", type="direct")
    bench.broker.end_turn(bench.now_us)

    objects = [(name.partition("-")[0] if "-" in name else "classic", name) for name in QUEUE_NAMES]
    objects += [("exchange", name) for name in EXCHANGE_NAMES]
    for kind, name in objects:
        effect = vhost.exchanges[name].effect if kind == "exchange" else vhost.queues[name].effect
        policy, operator_policy = chosen(there[False], kind, name), chosen(there[True], kind, name)
        assert (effect.policy, effect.operator_policy) == (policy, operator_policy)
        said = merged(
            there[False][policy]["definition"] if policy else {},
            there[True][operator_policy]["definition"] if operator_policy else {},
        )
        assert effect.settings == said
        if kind == "exchange":
            assert vhost.exchanges[name].alternate == said.get("alternate-exchange")
        else:
            queue = vhost.queues[name]
            assert queue.ttl_us == said.get("message-ttl", -0.001) * 1000
            assert queue.idle_us == said.get("expires", 0) * 1000
            assert queue.dead_letter_exchange == said.get("dead-letter-exchange")
            limit = said.get("max-length", -1)
            assert (queue.limits.length_max if queue.limits is not None else -1) == limit
