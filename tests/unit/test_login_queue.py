"""Who waits for the thread that checks passwords, in which order, and how many hashes a login costs."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import pytest

from leveret.admin.login import log_in
from leveret.broker.access import argon2id
from leveret.broker.access.login_throttle import FREE, FREE_OF_ADDRESS, STEP_US
from leveret.broker.access.users import ARGON2ID, SHA256, User, hash_password
from leveret.broker.broker import Settings
from leveret.broker.storage.definitions import USER
from leveret.control.calls.turns import Turns
from leveret.control.commands.access.users import Authenticate
from leveret.control.passwords import authenticated
from leveret.control.refusal import Refused
from leveret.net.connections.fair_queue import FairQueue
from leveret.net.connections.logins import SWEEP_MIN, LoginHeld, Logins
from leveret.wire import grammar

from .support import Bench, Client
from .test_logins import login, said

HOST, ELSEWHERE = "10.0.0.1", "10.0.0.2"


class Thread:
    """Stands in for the thread that checks passwords; the test says when a check is done."""

    def __init__(self) -> None:
        self.checks: list[tuple[User, str, Future[bool]]] = []

    def submit(self, accepts: Any, password: str) -> Future[bool]:
        future: Future[bool] = Future()
        future.set_running_or_notify_cancel()
        self.checks.append((accepts.__self__, password, future))
        return future

    def finish(self) -> None:
        """Finish the last check; the right password is "right"."""
        user, password, future = self.checks[-1]
        future.set_result(password == "right" and bool(user.name))

    def shutdown(self, *, cancel_futures: bool) -> None:
        pass


class Operator:
    """A broker with its queue of logins, and the part of a node that a login uses."""

    def __init__(self, *, hashing: str = ARGON2ID) -> None:
        self.bench = Bench(Settings(password_hashing=hashing, loopback_users=()))
        self.broker = self.bench.broker
        slow_hash = b64encode(argon2id.NOBODY.encode()).decode()  # not verified by any test
        quick_hash = hash_password("right", bytes, SHA256)
        for name, algorithm, password_hash in (
            ("slow", ARGON2ID, slow_hash), ("quick", SHA256, quick_hash), ("mute", SHA256, ""),
            ("slow-and-mute", ARGON2ID, ""),
        ):  # fmt: skip
            if hashing == ARGON2ID or algorithm == SHA256:
                fields = {"password_hash": password_hash, "hashing_algorithm": algorithm, "tags": ["monitoring"]}
                self.broker.definitions.put(USER, {"name": name, **fields})
        self.decided: list[object] = []
        self.logins = Logins(self.broker, self.now_us, self.decided.append)
        self.thread = self.logins._thread = Thread()  # type: ignore[assignment]
        self.host = self

    def now_us(self) -> int:
        return self.bench.now_us

    async def settle(self) -> None:
        """Run the loop until only the thread can make progress."""
        for _ in range(5):
            await asyncio.sleep(0)
        while self.logins._is_set:  # noqa: ASYNC110  (another turn of the loop is what brings it on)
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Let the thread finish its check."""
        before = len(self.decided)
        self.thread.finish()
        while len(self.decided) == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self.settle()

    def names(self) -> list[str]:
        """Return the users whose passwords the thread checked; "" stands for none."""
        return [user.name for user, _, _ in self.thread.checks]


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    operator = Operator()
    yield operator
    operator.logins.stop()


def answer(client: Client) -> str:
    methods = said(client)
    return methods[0].spec.name if methods else ""


@pytest.mark.parametrize("user", ["slow", "quick", "mute", "slow-and-mute", "nobody"])
async def test_a_wrong_password_costs_one_slow_hash_whoever_it_is_of(operator: Operator, user: str) -> None:
    client = login(operator.bench, user, "wrong")
    await operator.settle()
    assert len(operator.thread.checks) == 1
    checked = operator.thread.checks[0][0]
    assert checked.is_slow
    assert checked.has_password, "and it is a true hash"
    await operator.finish()
    assert answer(client) == grammar.CONNECTION_CLOSE.name
    assert len(operator.thread.checks) == 1


@pytest.mark.parametrize("user", ["quick", "mute", "nobody"])
async def test_a_wrong_password_costs_one_quick_hash_whoever_it_is_of(
    user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, count, new = Operator(hashing=SHA256), [0], hashlib.new

    def counted(*arguments: Any) -> Any:
        count[0] += 1
        return new(*arguments)

    monkeypatch.setattr(hashlib, "new", counted)
    assert answer(login(operator.bench, user, "wrong")) == grammar.CONNECTION_CLOSE.name
    assert count == [1]
    assert operator.thread.checks == []


async def test_one_slow_user_makes_all_wrong_passwords_slow_and_a_right_one_is_not() -> None:
    operator = Operator(hashing=SHA256)
    assert not operator.broker.users.is_slow
    fields = {"password_hash": "AAAA", "hashing_algorithm": ARGON2ID, "tags": []}
    operator.broker.definitions.put(USER, {"name": "imported", **fields})
    operator.broker.definitions.put(USER, {"name": "imported", **fields})
    wrong = login(operator.bench, "quick", "wrong")
    await operator.settle()
    assert operator.names() == [""]
    await operator.finish()
    right = login(operator.bench, "quick", "right")
    await operator.settle()
    assert [answer(wrong), answer(right)] == [grammar.CONNECTION_CLOSE.name, grammar.CONNECTION_TUNE.name]
    assert operator.names() == [""]
    operator.broker.delete_user("imported")
    assert not operator.broker.users.is_slow


async def test_addresses_take_turns(operator: Operator) -> None:
    """An address that guesses for many users keeps another one waiting for two passwords at most."""
    for number in range(50):
        login(operator.bench, f"user-{number}", "wrong", f"{HOST}:{number + 1}")
    await operator.settle()
    client = login(operator.bench, "slow", "right", f"{ELSEWHERE}:1")
    for _ in range(3):
        await operator.finish()
    assert answer(client) == grammar.CONNECTION_TUNE.name
    assert operator.names() == ["", "", "slow", ""], "and the others go on"


async def test_those_behind_one_who_failed_are_not_looked_at(operator: Operator) -> None:
    """Guessing on many connections gets no more hashes than guessing on one."""
    guesses = [login(operator.bench, "slow", "wrong", f"{HOST}:{number + 1}") for number in range(100)]
    await operator.settle()
    for _ in range(FREE):
        await operator.finish()
    assert operator.names() == ["slow"] * FREE
    assert not operator.logins._is_hashing
    assert operator.logins.next_us() == operator.now_us() + STEP_US
    answers = [answer(client) for client in guesses]
    waiting = answers.count("")
    assert 0 < waiting < 50
    assert answers.count(grammar.CONNECTION_CLOSE.name) == 100 - waiting
    other = login(operator.bench, "quick", "right", f"{HOST}:200")
    await operator.settle()
    assert answer(other) == grammar.CONNECTION_TUNE.name
    operator.bench.now_us += STEP_US
    operator.logins.ring()
    await operator.settle()
    assert len(operator.thread.checks) == FREE + 1


async def test_who_sprays_is_held_up_and_who_was_there_before_is_not(operator: Operator) -> None:
    assert await operator.logins.check(HOST, "quick", "right")
    operator.broker.login_throttle.done(HOST, "quick", "http", True, operator.now_us())
    for number in range(2 * FREE_OF_ADDRESS):
        login(operator.bench, f"user-{number}", "wrong", f"{HOST}:{number + 1}")
    await operator.settle()
    while operator.logins._is_hashing:
        await operator.finish()
    assert len(operator.thread.checks) == FREE_OF_ADDRESS
    assert await operator.logins.check(HOST, "quick", "right")


async def test_connections_that_have_gone_do_not_pile_up(operator: Operator) -> None:
    for number in range(SWEEP_MIN + 10):
        login(operator.bench, "slow", "wrong", f"{HOST}:{number + 1}").peer.lost(operator.now_us())
    assert operator.logins._line.count <= 10
    await operator.settle()
    assert operator.thread.checks == []


# -- the HTTP API ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hashing", [SHA256, ARGON2ID])
async def test_a_call_that_is_too_early_is_told_when_and_holds_nothing(hashing: str) -> None:
    operator = Operator(hashing=hashing)
    for _ in range(FREE):
        operator.broker.login_throttle.done(HOST, "quick", "http", False, operator.now_us())
    with pytest.raises(LoginHeld) as held:
        await operator.logins.check(HOST, "quick", "right")
    assert (held.value.wait_us, held.value.due_us) == (STEP_US, operator.now_us() + STEP_US)
    with pytest.raises(LoginHeld):
        await operator.logins.check(HOST, "quick", "right", held.value.due_us)  # still too early
    assert operator.logins.next_us() == 0
    operator.bench.now_us += STEP_US
    assert await operator.logins.check(HOST, "quick", "right", held.value.due_us) is True
    operator.logins.stop()


async def test_attempts_by_http_and_by_amqp_are_in_one_line() -> None:
    operator = Operator(hashing=SHA256)
    node: Any = operator
    for _ in range(FREE):
        with pytest.raises(Refused):
            await authenticated(node, "quick", "wrong", HOST, "http")
    waiter = login(operator.bench, "quick", "right", f"{HOST}:1")
    assert answer(waiter) == ""
    held = await Authenticate(name="quick", password="right", address=HOST)._authenticate(node)
    assert held == {"wait_us": 2 * STEP_US, "due_us": operator.now_us() + 2 * STEP_US}
    assert (await authenticated(node, "quick", "right", ELSEWHERE, "http")).name == "quick"
    assert (await authenticated(node, "quick", "right", "", "http")).name == "quick"
    for _ in range(100):
        with pytest.raises((Refused, LoginHeld)):
            await authenticated(node, "quick", "right", HOST, "http")
    assert operator.broker.login_throttle.failed["http"] > FREE, "those that were refused unseen are counted"
    mute = Authenticate(name="mute", password="wrong", address=HOST)._authenticate(node)
    with pytest.raises(Refused):
        await mute


async def test_the_http_api_waits_where_nobody_waits_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own process, between two calls of the broker."""
    asked: list[dict[str, Any]] = []
    slept: list[float] = []

    class Control:
        async def call(self, command: str, fields: dict[str, Any], by: object) -> object:
            asked.append(fields)
            return {"name": "u", "tags": ["monitoring"]} if "due_us" in fields else {"wait_us": 250_000, "due_us": 7}

    class Request:
        client = None
        headers: dict[str, str] = {}  # noqa: RUF012

    async def sleep(time_s: float) -> None:
        slept.append(time_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    control: Any = Control()
    request: Any = Request()
    assert (await log_in(request, control, "u", "p")).name == "u"
    assert slept == [0.25]
    assert [fields.get("due_us") for fields in asked] == [None, 7]


async def test_no_address_has_all_turns() -> None:
    turns, inside, leave = Turns(4), list[str](), asyncio.Event()

    async def call(address: str) -> None:
        async with turns.turn(address):
            inside.append(address)
            await leave.wait()

    crowd = [asyncio.create_task(call("crowd")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inside == ["crowd"] * 2
    others = [asyncio.create_task(call(address)) for address in ("a", "b", "c")]
    while len(inside) < 4:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert inside[2:] == ["a", "b"]
    for gone in crowd[:10]:
        gone.cancel()
    await asyncio.gather(*crowd[:10], return_exceptions=True)
    leave.set()
    await asyncio.gather(*crowd[10:], *others)
    assert inside.count("crowd") == 12
    assert "c" in inside
    assert (turns._free, turns._busy) == (4, {})


def test_a_fair_queue_keeps_the_order_within_an_address() -> None:
    queue: FairQueue[int] = FairQueue()
    for address, item in (("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)):
        queue.add(address, item)
    order: list[int] = []
    allowed: Callable[[str], bool] = lambda address: address != "c"  # noqa: E731
    while (found := queue.pop(allowed)) is not None:
        order.append(found[1])
    assert order == [1, 4, 2, 6, 3]
    assert (queue.count, queue.pop()) == (1, ("c", 5))
    assert queue.pop() is None
