"""Logins that wait, for their turn or for a slow password; hashes; and cached permissions."""

from __future__ import annotations

import pytest

from leveret.broker.access import argon2id, handshake
from leveret.broker.access.access import GRANTED_MAX
from leveret.broker.access.login_throttle import FREE
from leveret.broker.access.users import ARGON2ID, MD5, SHA256, SHA512, User, hash_password
from leveret.broker.broker import Settings
from leveret.broker.peer import CLOSE_DELAY_US, SILENCE_US, Peer
from leveret.broker.storage.definitions import PERMISSION, TOPIC_PERMISSION, USER
from leveret.session import lifecycle
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER
from leveret.wire.method import Method, method_frame

from .support import Bench, Client, counted_bytes

HEARS = {"capabilities": {"authentication_failure_close": True}}


def slow_bench() -> Bench:
    """A broker whose user "slow" has a password that takes long to check."""
    bench = Bench(Settings(password_hashing=ARGON2ID))
    random = counted_bytes()
    password_hash = hash_password("right", lambda count: next(random)[-count:], ARGON2ID)
    bench.broker.definitions.put(
        USER, {"name": "slow", "password_hash": password_hash, "hashing_algorithm": ARGON2ID, "tags": []}
    )
    anything = {"configure": ".*", "write": ".*", "read": ".*"}
    bench.broker.definitions.put(PERMISSION, {"user": "slow", "vhost": "/", **anything})
    return bench


def login(bench: Bench, user: str, password: str, address: str = "10.0.0.1:5", *, hears: bool = True) -> Client:
    client = Client(bench, Peer(bench.broker, address, True))
    client.raw(PROTOCOL_HEADER)
    response = f"\0{user}\0{password}".encode()
    properties = HEARS if hears else {}
    client.send(0, grammar.CONNECTION_START_OK, client_properties=properties, mechanism="PLAIN", response=response)
    return client


def said(client: Client) -> list[Method]:
    return [each for each in client.methods() if each.spec is not grammar.CONNECTION_START]


def test_a_slow_password_is_not_looked_at_in_the_turn_and_what_follows_waits() -> None:
    bench = slow_bench()
    waiting: list[Peer] = []
    bench.broker.on_login = waiting.append
    client = login(bench, "slow", "right")
    # the client does not wait for answers, either
    client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    rest = method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/") + method_frame(1, grammar.CHANNEL_OPEN)
    for at in range(len(rest)):
        client.raw(rest[at : at + 1])
    assert waiting == [client.peer]
    assert said(client) == []
    assert client.peer.login is not None
    is_right = bench.broker.users.accepts("slow", client.peer.login.password)
    handshake.resume(client.peer, is_right, bench.now_us)
    client.raw(b"")
    specs = [each.spec for each in said(client)]
    assert specs == [grammar.CONNECTION_TUNE, grammar.CONNECTION_OPEN_OK, grammar.CHANNEL_OPEN_OK]


def test_what_comes_with_a_slow_password_in_one_read_waits_too() -> None:
    bench = slow_bench()
    client = Client(bench, Peer(bench.broker, "10.0.0.1:5", True))
    client.raw(PROTOCOL_HEADER)
    start = method_frame(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0slow\0right")
    tune = method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    client.raw(start + tune + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/"))
    assert said(client) == []
    assert client.peer.state == lifecycle.TUNING
    handshake.resume(client.peer, True, bench.now_us)
    client.raw(b"")
    assert [each.spec for each in said(client)] == [grammar.CONNECTION_TUNE, grammar.CONNECTION_OPEN_OK]


def test_a_slow_password_that_is_wrong_is_refused() -> None:
    bench = slow_bench()
    client = login(bench, "slow", "wrong")
    client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    handshake.resume(client.peer, False, bench.now_us)
    client.raw(b"")
    [close] = said(client)
    assert (close.spec, close.number("reply_code")) == (grammar.CONNECTION_CLOSE, 403)
    assert client.peer.state == lifecycle.CLOSING
    handshake.resume(client.peer, True, bench.now_us)  # too late
    assert said(client) == []


def test_a_user_that_goes_while_the_password_is_looked_at_does_not_get_in() -> None:
    bench = slow_bench()
    client = login(bench, "slow", "right")
    bench.broker.delete_user("slow")
    handshake.resume(client.peer, True, bench.now_us)
    [close] = said(client)
    assert close.number("reply_code") == 403


def test_who_does_not_exist_takes_as_long_as_who_does() -> None:
    bench = slow_bench()
    waiting: list[Peer] = []
    bench.broker.on_login = waiting.append
    client = login(bench, "nobody", "right")
    assert waiting == [client.peer]
    nobody = bench.broker.users.slow("nobody")
    assert nobody.is_slow
    assert not nobody.accepts("right")
    # it is a real hash, which is verified
    from argon2 import extract_parameters, profiles

    assert extract_parameters(argon2id.NOBODY) == profiles.RFC_9106_LOW_MEMORY


def test_a_user_that_failed_often_from_an_address_waits_before_the_password_is_looked_at() -> None:
    bench = Bench()
    waiting: list[Peer] = []
    bench.broker.on_login = waiting.append
    for _ in range(FREE):
        [close] = said(login(bench, "guest", "wrong"))
        assert close.number("reply_code") == 403
    waiter = login(bench, "guest", "guest", "10.0.0.1:6")
    assert waiting == [waiter.peer]
    assert said(waiter) == []
    assert waiter.peer.login is not None
    assert waiter.peer.login.due_us > bench.now_us
    [tune] = said(login(bench, "guest", "guest", "10.0.0.2:7"))
    assert tune.spec is grammar.CONNECTION_TUNE
    bench.broker.definitions.put(USER, {"name": "u", "password_hash": hash_password("p", bytes), "tags": []})
    [tune] = said(login(bench, "u", "p", "10.0.0.1:8"))
    assert tune.spec is grammar.CONNECTION_TUNE
    handshake.resume(waiter.peer, True, waiter.peer.login.due_us)
    assert [each.spec for each in said(waiter)] == [grammar.CONNECTION_TUNE]


def test_a_crowd_that_waits_is_refused_without_a_look() -> None:
    bench = Bench()
    events: list[str] = []
    bench.broker.on_event = events.append
    for _ in range(FREE):
        login(bench, "guest", "wrong")
    crowd = [login(bench, "guest", "guest") for _ in range(100)]
    assert said(crowd[-1])[0].number("reply_code") == 403
    assert any("refused without a check" in event for event in events)
    assert bench.broker.login_throttle.failed == {"amqp091": bench.broker.refusals["login"]}


def test_a_refusal_without_a_word_leaves_the_socket_open_for_a_while() -> None:
    bench = Bench()
    client = login(bench, "guest", "wrong", hears=False)
    assert said(client) == []
    assert (client.peer.state, client.peer.close_delay_us) == (lifecycle.DRAINING, SILENCE_US)
    client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    assert said(client) == []
    assert login(bench, "guest", "wrong").peer.close_delay_us == CLOSE_DELAY_US


@pytest.mark.parametrize(("users", "gets_in"), [(("guest",), False), ((), True), (("other",), True)])
def test_loopback_users_log_in_from_here_only(users: tuple[str, ...], gets_in: bool) -> None:
    bench = Bench(Settings(loopback_users=users))
    client = Client(bench, Peer(bench.broker, "10.0.0.1:5", False))
    client.raw(PROTOCOL_HEADER)
    client.send(
        0, grammar.CONNECTION_START_OK, client_properties=HEARS, mechanism="PLAIN", response=b"\0guest\0guest"
    )
    spec = said(client)[-1].spec
    assert spec is (grammar.CONNECTION_TUNE if gets_in else grammar.CONNECTION_CLOSE)


def test_the_broker_has_no_more_connections_than_its_limit() -> None:
    bench = Bench(Settings(connection_max=2))
    first, _ = bench.connect(), bench.connect()

    def third() -> Client:
        client = login(bench, "guest", "guest")
        client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
        client.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
        return client

    close = said(third())[-1]
    text = "NOT_ALLOWED - connection refused: node connection limit (2) is reached"
    assert (close.number("reply_code"), close.text("reply_text")) == (530, text)
    first.send(0, grammar.CONNECTION_CLOSE)
    assert said(third())[-1].spec is grammar.CONNECTION_OPEN_OK
    assert bench.broker.connection_count == 2


@pytest.mark.parametrize("end", ["close", "lost", "error"])
def test_a_connection_counts_once_and_goes_once(end: str) -> None:
    bench = Bench()
    client = bench.connect()
    vhost = bench.broker.vhosts["/"]
    assert (bench.broker.connection_count, vhost.connection_count) == (1, 1)
    assert bench.broker.connections_of("guest") == {client.peer}
    if end == "close":
        client.send(0, grammar.CONNECTION_CLOSE)
    elif end == "error":
        client.send(7, grammar.QUEUE_DECLARE)
    client.peer.lost(bench.now_us)
    assert (bench.broker.connection_count, vhost.connection_count) == (0, 0)
    assert bench.broker.connections_of("guest") == set()


# -- hashes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SHA256, SHA512, MD5, ARGON2ID])
def test_a_hash_accepts_its_password_and_no_other(algorithm: str) -> None:
    random = counted_bytes()
    hashed = hash_password("pässword", lambda count: next(random)[-count:], algorithm)
    user = User({"name": "u", "password_hash": hashed, "hashing_algorithm": algorithm})
    assert user.accepts("pässword")
    assert not user.accepts("password")
    assert not user.accepts("")
    assert hashed != hash_password("pässword", lambda count: next(random)[-count:], algorithm)


def test_a_hash_that_rabbitmq_made_is_understood() -> None:
    exported = {"name": "u", "password_hash": "5AAPr+PA2s0bGLi9tqwEHMREbgezZ6bdc33fQSAH+A6zi9Db"}
    assert User({**exported, "hashing_algorithm": SHA256}).accepts("p")
    assert not User({**exported, "hashing_algorithm": SHA512}).accepts("p")


@pytest.mark.parametrize("algorithm", [SHA256, ARGON2ID, "no_such_algorithm"])
@pytest.mark.parametrize("hashed", ["", "AAAA", "JGFyZ29uMmlk"])
def test_what_is_no_hash_lets_nobody_in(algorithm: str, hashed: str) -> None:
    user = User({"name": "u", "password_hash": hashed, "hashing_algorithm": algorithm})
    assert not user.accepts("secret")


# -- permissions -------------------------------------------------------------------------------------------------------


def restricted(bench: Bench, write: str = "^t$") -> Client:
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="t", type="topic")
    permission = {"user": "guest", "vhost": "/", "configure": ".*", "write": write, "read": ".*"}
    bench.broker.definitions.put(PERMISSION, permission)
    return client


def test_connections_of_one_user_share_what_was_found_out() -> None:
    bench = Bench()
    clients = [bench.connect() for _ in range(3)]
    assert len({id(client.peer.access()) for client in clients}) == 1
    assert clients[0].peer.access().may_all


def test_what_was_granted_for_keys_is_bounded() -> None:
    bench = Bench()
    client = restricted(bench)
    topics = {"user": "guest", "vhost": "/", "exchange": "t", "write": "^k", "read": ""}
    bench.broker.definitions.put(TOPIC_PERMISSION, topics)
    for number in range(GRANTED_MAX + 10):
        client.publish(f"k{number}", exchange="t")
    assert 0 < len(client.peer.access()._granted) <= GRANTED_MAX
    client.publish("x", exchange="t")
    assert client.methods()[-1].spec is grammar.CHANNEL_CLOSE


def test_topic_permissions_are_about_those_too_who_may_do_everything_else() -> None:
    bench = Bench()
    client = restricted(bench, ".*")
    assert client.peer.access().may_all
    topics = {"user": "guest", "vhost": "/", "exchange": "t", "write": "^k", "read": ""}
    bench.broker.definitions.put(TOPIC_PERMISSION, topics)
    client.publish("x", exchange="t")
    assert client.methods()[-1].number("reply_code") == 403


@pytest.mark.parametrize("permitted", ["", ".*"])
def test_one_users_cached_route_is_no_permission_for_another(permitted: str) -> None:
    """The other user lacks permissions, or has all, and a topic permission that does not cover the routing key."""
    bench = Bench()
    bench.broker.definitions.put(
        USER, {"name": "u", "password_hash": hash_password("p", bytes), "tags": []}
    )
    where = {"user": "u", "vhost": "/"}
    bench.broker.definitions.put(PERMISSION, {**where, **dict.fromkeys(("configure", "write", "read"), permitted)})
    bench.broker.definitions.put(TOPIC_PERMISSION, {**where, "exchange": "amq.topic", "write": "^other", "read": ""})
    guest = bench.connect()
    guest.publish("k", exchange="amq.topic")
    other = login(bench, "u", "p")
    other.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    other.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
    other.call(1, grammar.CHANNEL_OPEN)
    other.publish("k", exchange="amq.topic")
    assert other.methods()[-1].number("reply_code") == 403


def test_a_change_of_permissions_reaches_the_next_publish() -> None:
    bench = Bench()
    client = restricted(bench, "^t$")
    client.publish("k", exchange="t")
    assert client.methods() == []
    bench.broker.definitions.remove(PERMISSION, "guest", "/")
    client.publish("k", exchange="t")
    assert client.methods()[-1].number("reply_code") == 403
