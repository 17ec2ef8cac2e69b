"""The event loop's poller: when it polls busily and when it sleeps."""

import os
import socket
from collections.abc import Iterator

import pytest

from leveret.net import poller as module
from leveret.net.poller import SHORT_WAITS_MIN, Poller


class Clock:
    """A clock that advances by a fixed time on each yield or sleep."""

    def __init__(self, yield_us: int = 10) -> None:
        self.now_us = 0.0
        self.yields = 0
        self.yield_us = yield_us

    def perf_counter(self) -> float:
        return self.now_us / 1e6

    def sched_yield(self) -> None:
        self.yields += 1
        self.now_us += self.yield_us


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module.time, "perf_counter", found.perf_counter)
    monkeypatch.setattr(module.os, "sched_yield", found.sched_yield)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: {0, 1})
    return found


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def waiting(pair: tuple[socket.socket, socket.socket], busy_poll_us: int = 100) -> Poller:
    """Return a poller whose last waits were short and which has nothing to read now."""
    found = Poller(busy_poll_us)
    found.register(pair[0], module.selectors.EVENT_READ)
    short_waits(found, pair, SHORT_WAITS_MIN)
    return found


def short_waits(poller: Poller, pair: tuple[socket.socket, socket.socket], count: int) -> None:
    for _ in range(count):
        pair[1].send(b"x")
        assert len(poller.select(1)) == 1
        pair[0].recv(1)


def test_it_asks_again_after_a_short_wait_and_sleeps_after_the_limit(
    clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    with waiting(pair) as poller:
        assert poller.select(0.001) == []
        assert clock.yields == 10
        assert poller.found == 0


def test_it_returns_as_soon_as_there_is_something(
    clock: Clock, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrive() -> None:
        clock.sched_yield()
        if clock.yields == 3:
            pair[1].send(b"x")

    with waiting(pair) as poller:
        monkeypatch.setattr(module.os, "sched_yield", arrive)
        assert [key.fileobj for key, _ in poller.select(None)] == [pair[0]]
        assert clock.yields == 3
        assert poller.found == 1


def test_a_long_wait_is_followed_by_sleep(clock: Clock, pair: tuple[socket.socket, socket.socket]) -> None:
    with waiting(pair) as poller:
        clock.yield_us = 200  # more than one and a half times the limit
        poller.select(0.001)
        assert clock.yields == 1
        short_waits(poller, pair, SHORT_WAITS_MIN - 1)
        poller.select(0.001)
        assert clock.yields == 1


@pytest.mark.parametrize(("kept_us", "pause_us"), [(1_200, 50 * 1_100), (4_100, 50 * 4_000), (100_100, 1_000_000)])
def test_where_others_compute_it_sleeps_for_a_while(
    kept_us: int, pause_us: int, clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    with waiting(pair) as poller:
        clock.yield_us = kept_us
        poller.select(0.001)
        poller._short_waits = SHORT_WAITS_MIN
        poller.select(0.001)
        assert clock.yields == 2
        clock.yield_us = 10
        for later_us, yields in ((pause_us - 1, 2), (2, 2 + SHORT_WAITS_MIN + 10)):
            clock.now_us += later_us
            short_waits(poller, pair, SHORT_WAITS_MIN)
            poller.select(0.001)
            assert clock.yields == yields


def test_a_pause_of_the_machine_below_is_chance(clock: Clock, pair: tuple[socket.socket, socket.socket]) -> None:
    with waiting(pair) as poller:
        for kept_us in (4_000, 10, 4_000, 10):
            clock.yield_us = kept_us
            poller._short_waits = SHORT_WAITS_MIN
            poller.select(0.001)
        assert clock.yields == 1 + 10 + 1 + 10


def test_clients_and_the_kernel_may_take_their_time(
    clock: Clock, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrive() -> None:
        clock.sched_yield()
        pair[1].send(b"x")

    with waiting(pair) as poller:
        clock.yield_us = 1_000
        with monkeypatch.context() as patched:
            patched.setattr(module.os, "sched_yield", arrive)
            for _ in range(3):
                assert len(poller.select(None)) == 1
                pair[0].recv(1)
                poller._short_waits = SHORT_WAITS_MIN
        clock.yield_us = 10
        poller.select(0.001)
        assert clock.yields == 3 + 10


def test_a_few_short_waits_are_chance(clock: Clock, pair: tuple[socket.socket, socket.socket]) -> None:
    with Poller(100) as poller:
        poller.register(pair[0], module.selectors.EVENT_READ)
        short_waits(poller, pair, SHORT_WAITS_MIN - 1)
        poller.select(0.001)
        assert clock.yields == 0


def test_a_timer_is_not_late(clock: Clock, pair: tuple[socket.socket, socket.socket]) -> None:
    with waiting(pair) as poller:
        poller.select(0.00003)
        assert clock.yields == 3


def test_who_does_not_wait_asks_once(clock: Clock, pair: tuple[socket.socket, socket.socket]) -> None:
    with waiting(pair) as poller:
        assert poller.select(0) == []
        pair[1].send(b"x")
        assert len(poller.select(-1)) == 1
        assert clock.yields == 0


def test_the_processor_is_left_to_the_kernel_while_it_works_for_the_loop(
    clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    with Poller(0) as poller:
        poller.yields = True
        poller.select(0)
        assert clock.yields == 1
        poller.yields = False
        poller.select(0)
        assert clock.yields == 1


def test_it_rests_while_another_thread_works(clock: Clock, pair: tuple[socket.socket, socket.socket]) -> None:
    with waiting(pair) as poller:
        poller.rests = True
        poller.select(0.001)
        assert clock.yields == 0


@pytest.mark.parametrize(("busy_poll_us", "processors"), [(0, 2), (100, 1)])
def test_it_never_asks_again(
    busy_poll_us: int, processors: int, clock: Clock, pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    with waiting(pair, busy_poll_us) as poller:
        poller.select(0.001)
        assert clock.yields == 0
