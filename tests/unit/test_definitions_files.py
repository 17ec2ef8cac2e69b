"""Definitions files: an export equals its import, and a file with any error changes nothing."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.access.users import ARGON2ID, MD5, SHA256, SHA512, hash_password
from leveret.broker.broker import Broker
from leveret.broker.exchanges.binding import count_to
from leveret.broker.storage.definitions import PARAMETER, USER
from leveret.broker.storage.recovery import Recovery
from leveret.broker.timeline import ClockSample
from leveret.control.commands.definitions import ImportDefinitions
from leveret.control.definitions import exporting
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import, drop_defaults
from leveret.control.definitions.loading import finish
from leveret.control.refusal import Refused
from leveret.wire import grammar

from .asking import listed
from .support import Bench, begun, recovered

UPSTREAM = "federation-upstream"
SECTIONS = (
    "users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters", "policies", "queues",
    "exchanges", "bindings",
)  # fmt: skip


canonical = msgspec.json.Encoder(order="deterministic").encode


def document(table: dict[str, Any]) -> Document:
    return msgspec.json.decode(msgspec.json.encode(table), type=Document)


def put(bench: Bench, table: dict[str, Any], vhost: str | None = None, user: str = "") -> list[str]:
    return Import(bench.broker, document(table), vhost, user).apply(bench.now_us)


def exported(broker: Broker, vhost: str | None) -> dict[str, Any]:
    """Return the whole export, which is made in steps."""
    steps = exporting.exported(broker, vhost)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(dict[str, Any], listed(end.value))


def sections(bench: Bench) -> dict[str, list[Any]]:
    """Return each section of the export, sorted."""
    table = exported(bench.broker, None)
    return {section: sorted(table[section], key=canonical) for section in SECTIONS}


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: not name.startswith("amq.") and "\r" not in name and "\n" not in name
)
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.booleans() | numbers | names
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
tables = st.dictionaries(names.map(lambda name: f"a-{name}"), values, max_size=3)
patterns = st.sampled_from(["", ".*", "^a", "b$"])


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Generate a file that a broker could export."""
    users = draw(st.lists(names, unique=True, max_size=3))
    vhosts = draw(st.lists(names, unique=True, min_size=1, max_size=3))
    places = [(vhost, name) for vhost in vhosts for name in draw(st.lists(names, unique=True, max_size=3))]
    sources = [(vhost, name) for vhost in vhosts for name in draw(st.lists(names, unique=True, max_size=3))]
    kind = st.sampled_from(["direct", "fanout", "topic", "headers"])
    pairs = [(source, queue) for source in sources for queue in places if source[0] == queue[0]]
    return {
        "users": [
            {
                "name": name, "password_hash": hash_password(draw(names), bytes),
                "hashing_algorithm": SHA256,
                "tags": draw(st.lists(st.sampled_from(["administrator", "mine"]), unique=True)),
                "limits": draw(st.dictionaries(st.just("max-channels"), st.integers(-1, 9))),
            }
            for name in users
        ],
        "vhosts": [{"name": name, "description": draw(names), "tags": ["t"]} for name in vhosts],
        "permissions": [
            {"user": user, "vhost": vhost, "configure": draw(patterns), "write": draw(patterns), "read": draw(patterns)}
            for user in users for vhost in vhosts
        ],
        "topic_permissions": [
            {"user": user, "vhost": vhost, "exchange": "amq.topic", "write": draw(patterns), "read": draw(patterns)}
            for user in users for vhost in vhosts
        ],
        "global_parameters": [{"name": name, "value": draw(values)} for name in draw(st.lists(names, unique=True))],
        "exchanges": [
            {"name": name, "vhost": vhost, "type": draw(kind), "durable": draw(st.booleans()),
             "auto_delete": draw(st.booleans()), "internal": draw(st.booleans()), "arguments": draw(tables)}
            for vhost, name in sources
        ],
        "queues": [
            {"name": name, "vhost": vhost, "durable": draw(st.booleans()), "auto_delete": draw(st.booleans()),
             "arguments": draw(tables)}
            for vhost, name in places
        ],
        "bindings": [
            {"source": source, "vhost": vhost, "destination": queue, "destination_type": "queue",
             "routing_key": draw(names), "arguments": draw(tables)}
            for (vhost, source), (_, queue) in pairs
        ],
    }  # fmt: skip


@given(files())
def test_what_goes_in_comes_out_of_this_broker_and_of_one_that_recovers(table: dict[str, Any]) -> None:
    bench = Bench()
    drop_defaults(bench.broker, document(table))
    assert put(bench, table) == []
    found = sections(bench)
    for section, entries in table.items():
        told = [{name: value for name, value in entry.items() if name != "metadata"} for entry in found[section]]
        assert sorted(told, key=canonical) == sorted(entries, key=canonical)
    other = Bench()
    drop_defaults(other.broker, document(table))
    put(other, msgspec.json.decode(msgspec.json.encode(exported(bench.broker, None))))
    assert sections(other) == found
    again = recovered([bench.sync()])
    for section in ("users", "vhosts", "permissions", "topic_permissions", "global_parameters"):
        assert sections(again)[section] == found[section]
    assert sections(again)["queues"] == [queue for queue in found["queues"] if queue["durable"]]


def test_the_whole_file_is_one_batch() -> None:
    bench = Bench()
    put(bench, {"vhosts": [{"name": "v"}], "queues": [{"name": "q", "vhost": "v", "durable": True}]})
    assert bench.broker.log.batch == 1
    bench.sync()
    assert "q" in recovered(bench.batches).broker.vhosts["v"].queues


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"users": [{"name": "u", "tags": "", "password": "p", "password_hash": "aaaa"}]}, "users[0] 'u': both_password"),
    ({"users": [{"name": "u"}]}, "users[0] 'u': tags_not_present"),
    ({"users": [{"name": "u", "tags": [], "password_hash": "?"}]}, "users[0] 'u': "),
    ({"users": [{"name": "u", "tags": [], "password_hash": "", "hashing_algorithm": "rot13"}]}, "'rot13'"),
    ({"users": [{"name": "u", "tags": [], "limits": [1]}]}, "users[0] 'u': expected a table"),
    ({"users": [{"name": "u", "tags": [], "limits": {"max-fun": 1}}]}, "users[0] 'u': "),
    ({"users": [{"name": "u", "tags": [], "limits": {"max-channels": 1 << 70}}]}, "users[0] 'u': "),
    (
        {"policies": [{"name": "p", "vhost": "/", "pattern": "x", "definition": {"max-length": "y"}}]},
        "policies[0] 'p': Validation failed",
    ),
    (
        {"policies": [{"name": "p", "vhost": "v2", "pattern": "x", "definition": {"max-length": 1}}]},
        'Please create virtual host "v2" prior to importing definitions.',
    ),
    (
        {"parameters": [{"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": "y"}}]},
        "parameters[0] 'limits': Validation failed",
    ),
    ({"vhosts": [{"name": ""}]}, "vhosts[0] '': a virtual host needs a name"),
    (
        {"permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}]},
        "permissions[0] 'nobody': user 'nobody' does not exist",
    ),
    (
        {"permissions": [{"user": "guest", "vhost": "v2", "configure": "", "write": "", "read": ""}]},
        'Please create virtual host "v2" prior to importing definitions.',
    ),
    (
        {"permissions": [{"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}]},
        "invalid regular expression '('",
    ),
    ({"exchanges": [{"name": "x", "vhost": "/", "type": "xyz"}]}, "exchanges[0] 'x': unknown exchange type 'xyz'"),
    (
        {"exchanges": [{"name": "x", "vhost": "/", "type": "fanout", "arguments": {"alternate-exchange": 1}}]},
        "invalid type 'long' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
    ),
    ({"queues": [{"name": "q"}]}, "queues[0] 'q': Virtual host does not exist and is not specified"),
    ({"queues": [{"name": "", "vhost": "/"}]}, "queues[0] '': a queue needs a name"),
    ({"queues": [{"name": "q" * 256, "vhost": "/"}]}, "queue should be less than 255 bytes, actually was 256"),
    (
        {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": -1}}]},
        "queues[0] 'q': invalid arg 'x-max-length' for queue 'q' in vhost '/': {value_negative,-1}",
    ),
    (
        {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-queue-type": "quorum"}}]},
        "invalid property 'non-durable' for queue 'q' in vhost '/'",
    ),
    ({"queues": [{"name": "q", "vhost": "/", "arguments": {"a": None}}]}, "queues[0] 'q': null_not_allowed"),
    (
        {
            "exchanges": [{"name": "x", "vhost": "/", "type": "headers"}],
            "queues": [{"name": "q", "vhost": "/"}],
            "bindings": [
                {"source": "x", "vhost": "/", "destination": "q", "destination_type": "queue",
                 "arguments": {"x-match": "most"}}
            ],
        },
        "bindings[0] 'x': Invalid x-match field value",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_a_file_with_a_mistake_changes_nothing(wrong: dict[str, Any], reason: str) -> None:
    bench = Bench()
    before = exported(bench.broker, None)
    fine: dict[str, Any] = {
        "users": [{"name": "fine", "tags": ""}], "vhosts": [{"name": "fine"}],
        "exchanges": [{"name": "fine", "vhost": "/", "type": "direct"}], "queues": [{"name": "fine", "vhost": "/"}],
        "global_parameters": [{"name": "fine", "value": 1}],
    }  # fmt: skip
    whole = {section: wrong.get(section, []) + fine.get(section, []) for section in SECTIONS}
    with pytest.raises(Refused) as refused:
        put(bench, whole)
    assert reason in refused.value.reason
    assert exported(bench.broker, None) == before
    assert bench.broker.log.size() == 0


def test_what_is_declared_stays_as_it_is_and_what_is_defined_is_set_anew() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True, arguments={"x-max-length": 5})
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct")
    put(
        bench,
        {
            "queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": -5}}],
            "exchanges": [{"name": "x", "vhost": "/", "type": "no such type"}],
            "users": [{"name": "guest", "tags": "a, b", "password": "new"}],
            "permissions": [{"user": "guest", "vhost": "/", "configure": "", "write": "^x", "read": ""}],
        },
    )
    table = exported(bench.broker, None)
    assert table["queues"][0]["arguments"] == {"x-max-length": 5}
    assert table["exchanges"][0]["type"] == "direct"
    assert table["users"][0]["tags"] == ["a", "b"]
    assert [permission["write"] for permission in table["permissions"]] == ["^x"]
    assert bench.broker.users.accepts("guest", "new")
    assert not bench.broker.users.accepts("guest", "guest")


def test_what_is_passed_over_is_said() -> None:
    warnings = put(
        Bench(),
        {
            "queues": [{"name": "amq.gen-1", "vhost": "/"}],
            "exchanges": [{"name": "amq.direct", "vhost": "/", "type": "direct"}],
            "bindings": [
                {"source": "amq.direct", "vhost": "/", "destination": "amq.gen-1", "destination_type": "queue"},
                {"source": "gone", "vhost": "/", "destination": "amq.topic", "destination_type": "exchange"},
                {"source": "", "vhost": "/", "destination": "gone", "destination_type": "queue"},
            ],
        },
    )
    assert warnings == [
        "queue 'amq.gen-1' in vhost '/': this name is reserved for the broker, skipped",
        "binding from 'amq.direct' to 'amq.gen-1' in vhost '/': queue 'amq.gen-1' does not exist, skipped",
        "binding from 'gone' to 'amq.topic' in vhost '/': exchange 'gone' does not exist, skipped",
    ]


def test_what_is_not_for_others_is_not_exported() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("", durable=False)
    client.queue("mine", exclusive=True)
    client.call(1, grammar.QUEUE_BIND, queue="mine", exchange="amq.fanout")
    client.queue("theirs", durable=False)
    client.call(1, grammar.QUEUE_BIND, queue="theirs", exchange="amq.fanout", routing_key="k")
    client.call(1, grammar.EXCHANGE_BIND, source="amq.fanout", destination="amq.topic")
    table = exported(bench.broker, None)
    assert [queue["name"] for queue in table["queues"]] == ["theirs"]
    assert table["exchanges"] == []
    assert [binding["destination"] for binding in table["bindings"]] == ["theirs", "amq.topic"]


@pytest.mark.parametrize(("version", "algorithm"), [("3.5.7", MD5), ("3.6.0", None), ("3.10.8", None), ("4.1.0", None)])
def test_users_of_old_brokers_have_md5(version: str, algorithm: str | None) -> None:
    bench = Bench()
    entry: dict[str, Any] = {"name": "old", "administrator": "true"}
    entry["password_hash"] = hash_password("secret", lambda count: b"salt", algorithm or SHA256)
    put(bench, {"rabbit_version": version, "users": [entry]})
    assert bench.broker.users.accepts("old", "secret")
    assert bench.broker.users.by_name["old"].tags == ["administrator"]


@pytest.mark.parametrize(("algorithm", "is_ours"), [(SHA512, False), (MD5, False), (ARGON2ID, True)])
def test_a_hash_of_another_algorithm_is_kept_and_used(algorithm: str, is_ours: bool) -> None:
    bench = Bench()
    password_hash = hash_password("secret", lambda count: b"s" * count, algorithm)
    entry = {"name": "u", "tags": [], "password_hash": password_hash, "hashing_algorithm": algorithm}
    put(bench, {"users": [entry]})
    assert bench.broker.users.by_name["u"].accepts("secret")
    assert not bench.broker.users.by_name["u"].accepts("Secret")
    table = exported(bench.broker, None)
    assert [user["password_hash"] for user in table["users"] if user["name"] == "u"] == [password_hash]
    assert ("warnings" in table) == is_ours


def test_an_export_says_which_hashes_rabbitmq_cannot_use() -> None:
    bench = Bench()
    bench.broker.definitions.put(USER, {"name": "modern", "password_hash": "", "hashing_algorithm": ARGON2ID})
    assert exported(bench.broker, None)["warnings"] == [
        "RabbitMQ cannot use the password hashes of 'modern': set new passwords there"
    ]


def test_definitions_of_one_virtual_host_go_into_another() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="amq.topic", routing_key="a.#")
    bench.broker.definitions.put(PARAMETER, {"vhost": "/", "component": UPSTREAM, "name": "n", "value": {"uri": "amqp://a"}})
    table = exported(bench.broker, "/")
    assert "users" not in table
    assert table["bindings"] == [
        {
            "source": "amq.topic", "destination": "q", "destination_type": "queue", "routing_key": "a.#",
            "arguments": {},
        }
    ]  # fmt: skip
    put(bench, {"vhosts": [{"name": "v"}]})
    put(bench, table, "v")
    assert {**exported(bench.broker, "v"), "parameters": []} == {**table, "parameters": []}
    assert exported(bench.broker, "v")["parameters"] == [
        {"vhost": "v", "component": UPSTREAM, "name": "n", "value": {"uri": "amqp://a"}}
    ]


def test_who_imports_may_use_new_virtual_hosts() -> None:
    bench = Bench()
    put(bench, {"vhosts": [{"name": "new"}, {"name": "/"}]}, user="guest")
    assert bench.broker.users.by_name["guest"].may("configure", "new", "q")
    put(bench, {"vhosts": [{"name": "other"}]})
    assert not bench.broker.users.by_name["guest"].may("configure", "other", "q")


def test_more_queues_than_the_limit_allows_abort_the_import() -> None:
    bench = Bench()
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 2}}
    bench.broker.definitions.put(PARAMETER, limits)
    put(bench, {"queues": [{"name": "1", "vhost": "/"}, {"name": "2", "vhost": "/"}]})
    put(bench, {"queues": [{"name": "1", "vhost": "/"}, {"name": "2", "vhost": "/"}]})
    with pytest.raises(Refused, match=r'Adding 1 queue\(s\) to virtual host "/" would exceed the limit of 2 queue'):
        put(bench, {"queues": [{"name": "3", "vhost": "/"}, {"name": "2", "vhost": "/"}]})


def test_bindings_from_a_file_are_those_that_rabbitmq_makes() -> None:
    """Integers have 64 bits, as in RabbitMQ: a client's binding with narrower integers is another binding."""
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="amq.headers", arguments={"a": 1 << 40})
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="amq.headers", arguments={"a": 1})
    put(bench, exported(bench.broker, None))
    assert count_to(bench.broker.vhosts["/"].queues["q"]) == 3


def test_a_broker_is_new_until_something_is_recorded() -> None:
    bench = Bench()
    assert bench.broker.is_new
    Recovery(bench.broker, bench.now_us).finish()
    assert recovered([bench.sync()]).broker.is_new
    bench.broker.timeline.note(ClockSample(1, 1, 1, ""))
    bench.sync()
    assert recovered(bench.batches).broker.is_new
    bench.connect().queue("q", durable=True)
    bench.sync()
    assert not recovered(bench.batches).broker.is_new


def test_what_only_a_plugin_of_rabbitmq_knows_is_passed_over() -> None:
    bench = Bench()
    shovel = {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://"}}
    warnings = put(bench, {"parameters": [shovel]})
    assert warnings == ["parameter 's' of component 'shovel' in vhost '/': unknown component, skipped"]
    assert exported(bench.broker, None)["parameters"] == []


def test_an_export_is_of_one_instant_though_others_have_their_turn_meanwhile() -> None:
    bench = Bench()
    client = bench.connect()
    for number in range(300):
        client.queue(f"q{number}")
        client.call(1, grammar.QUEUE_BIND, queue=f"q{number}", exchange="amq.fanout")
    steps = exporting.exported(bench.broker, None)
    next(steps)
    for number in range(300):
        client.call(1, grammar.QUEUE_DELETE, queue=f"q{number}")
    client.queue("new")
    try:
        while True:
            next(steps)
    except StopIteration as end:
        table = listed(end.value)
    assert [queue["name"] for queue in table["queues"]] == [f"q{number}" for number in range(300)]
    assert len(table["bindings"]) == 300


def test_what_rabbitmqctl_and_newer_versions_write_besides_is_understood_or_means_nothing() -> None:
    bench = Bench()
    table = {
        "rabbitmq_version": "4.1.0", "original_vhost_name": "x", "explanation": "of a whole cluster",
        "rabbitmq_definition_format": "cluster",
        "users": [{"name": "u", "password_hash": "", "tags": ["a"], "limits": {}, "hashing_algorithm": SHA256}],
        "vhosts": [
            {"name": "v", "limits": [], "metadata": {"description": "said", "tags": ["t"], "more": "quorum"}},
            {"name": "w", "description": "here", "tags": "a, b", "default_queue_type": "classic", "metadata": []},
        ],
        "queues": [{"name": "q", "vhost": "v", "type": "quorum", "durable": True, "auto_delete": False,
                    "arguments": {"x-queue-type": "quorum"}}],
        "exchanges": [{"name": "x", "vhost": "v", "type": "topic", "durable": True, "auto_delete": False,
                       "arguments": []}],
        "bindings": [{"source": "x", "vhost": "v", "destination": "q", "destination_type": "queue",
                      "routing_key": "", "arguments": []}],
    }  # fmt: skip
    assert put(bench, table) == []
    vhosts = {vhost["name"]: vhost for vhost in exported(bench.broker, None)["vhosts"]}
    assert (vhosts["v"]["description"], vhosts["v"]["tags"]) == ("said", ["t"])
    assert (vhosts["w"]["description"], vhosts["w"]["tags"]) == ("here", ["a", "b"])
    assert bench.broker.vhosts["v"].queues["q"].is_quorum
    assert count_to(bench.broker.vhosts["v"].queues["q"]) == 1


# -- interrupted imports -----------------------------------------------------------------------------------------------


def cut_off(bench: Bench, steps: int) -> list[bytes]:
    """Return the journal's batches, one per step, of a broker that ends after this many steps of an import."""
    work = ImportDefinitions(definitions=document(FILE))._steps(cast(Any, Node(bench)))
    for _ in range(steps):
        next(work, None)
        if bench.broker.log.size():
            bench.sync()
    return bench.batches


class Node:
    """The part of control's node that an import needs."""

    def __init__(self, bench: Bench) -> None:
        self.broker = bench.broker
        self.host = self
        self.now_us = lambda: bench.now_us


FILE: Final[dict[str, Any]] = {
    "users": [{"name": "ann", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "tags": ""}],
    "vhosts": [{"name": "/"}, {"name": "new"}],
    "permissions": [{"user": "ann", "vhost": "new", "configure": "", "write": ".*", "read": ".*"}],
    "policies": [{"name": "p", "vhost": "new", "pattern": "^q", "definition": {"max-length": 5}}],
    "exchanges": [{"name": "x", "vhost": "new", "type": "topic", "durable": True}],
    "queues": [{"name": name, "vhost": "new", "durable": True} for name in ("q1", "q2", "q3")],
    "bindings": [
        {"source": "x", "destination": name, "destination_type": "queue", "vhost": "new", "routing_key": "a.#"}
        for name in ("q1", "q2", "q3")
    ],
}
STEPS_MAX: Final = 40


@pytest.mark.parametrize("steps", range(STEPS_MAX))
def test_of_an_import_that_is_cut_off_there_is_all_or_nothing(steps: int) -> None:
    """Holds wherever the import ends, and if it is requested again."""
    whole = begun()
    put(whole, FILE)
    bench = begun()
    empty = sections(bench)
    after = recovered(cut_off(bench, steps))
    has_begun = len(after.broker.imports.begun) > 0
    told = finish(after.broker, after.now_us)
    assert (len(told), len(after.broker.imports.begun)) == (has_begun, 0)
    assert sections(after) in (empty, sections(whole))
    assert not has_begun or sections(after) == sections(whole)
    again = recovered([b"".join(after.broker.snapshot())])
    assert (sections(again), again.broker.imports.begun) == (sections(after), {})
    put(after, FILE)
    assert sections(after) == sections(whole)


def test_some_imports_are_cut_off_before_and_some_behind_their_beginning() -> None:
    counts = {steps: len(recovered(cut_off(begun(), steps)).broker.imports.begun) for steps in range(STEPS_MAX)}
    assert counts[0] == counts[STEPS_MAX - 1] == 0
    assert 1 in counts.values()


def test_a_new_journal_file_knows_of_imports_that_have_begun() -> None:
    bench = begun()
    number = bench.broker.imports.begin("a request")
    assert recovered([b"".join(bench.broker.snapshot())]).broker.imports.begun == {number: "a request"}
    bench.broker.imports.end(number)
    assert recovered([b"".join(bench.broker.snapshot())]).broker.imports.begun == {}


def test_what_others_delete_while_an_import_is_carried_out_takes_along_what_belongs_to_it() -> None:
    for steps in range(STEPS_MAX):
        bench = begun()
        work = ImportDefinitions(definitions=document(FILE))._steps(cast(Any, Node(bench)))
        for _ in range(steps):
            next(work, None)
        if "new" in bench.broker.vhosts:
            bench.broker.delete_vhost("new")
            bench.broker.delete_user("ann")
        for _ in work:
            pass
        table = exported(bench.broker, None)
        assert all(each["vhost"] in bench.broker.vhosts for each in table["permissions"] + table["policies"])
        assert len(table["queues"]) == (4 if "new" in bench.broker.vhosts else 1)


def test_an_import_that_makes_no_sense_any_more_is_told_of() -> None:
    bench = begun()
    bench.broker.imports.begin(msgspec.json.encode(ImportDefinitions(definitions=document(
        {"queues": [{"name": "q", "vhost": "gone", "durable": True}]}
    ))).decode())  # fmt: skip
    assert "cannot be completed" in finish(bench.broker, bench.now_us)[0]
    assert not bench.broker.imports.begun
