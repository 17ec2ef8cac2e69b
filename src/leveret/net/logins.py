"""Logins that wait: for their turn by a timer, for a password whose check takes long by a thread."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

from leveret.broker import handshake
from leveret.broker.broker import Broker
from leveret.broker.login import Login
from leveret.broker.login_throttle import network
from leveret.broker.peer import Peer
from leveret.net.fair_queue import FairQueue
from leveret.net.wakeup import Wakeup
from leveret.session import lifecycle
from leveret.session.connection import Connection

T = TypeVar("T")

# how many may wait for the thread before closed connections are removed; afterwards twice the number that is left
SWEEP_MIN: Final = 1024


class Held(Exception):
    """A call whose password may not be looked at yet. due_us: when it may; wait_us: until then."""

    def __init__(self, due_us: int, wait_us: int) -> None:
        super().__init__(f"too many failed logins of this user: wait {wait_us} µs")
        self.due_us = due_us
        self.wait_us = wait_us


class _Attempt:
    """Of a connection. due_us: when its password may be looked at, 0 = that has not been asked yet."""

    def __init__(self, logins: Logins, peer: Peer, login: Login) -> None:
        self._logins = logins
        self._peer = peer
        self.address, self.user, self.password = peer.host, login.user, login.password
        self.due_us = int(login.due_us)

    def is_over(self) -> bool:
        """Nobody waits for the answer any more."""
        return self._peer.login is None or self._peer.state == lifecycle.CLOSED

    def held(self) -> None:
        """Its turn is at `due_us`."""
        self._logins.wait(self)

    def decided(self, is_right: bool | None) -> None:
        """None: there was no look at it."""
        self._logins.decide(self._peer, is_right)


class _Call(_Attempt):
    """Of somebody who is on no connection of ours, and waits elsewhere for his turn."""

    def __init__(self, logins: Logins, address: str, user: str, password: str, due_us: int) -> None:
        self._logins = logins
        self.address, self.user, self.password, self.due_us = address, user, password, due_us
        self.answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

    def is_over(self) -> bool:
        return self.answer.done()

    def held(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(Held(self.due_us, self.due_us - self._logins.now_us()))

    def decided(self, is_right: bool | None) -> None:
        if not self.answer.done():
            self.answer.set_result(is_right)


class Logins:
    """One thread checks all passwords that take long: who guesses may keep one processor busy, and no more. The
    addresses that wait for it take turns, so one of them keeps others waiting for two passwords at most.

    decided: told of a peer whose login is over.
    """

    def __init__(self, broker: Broker, now_us: Callable[[], int], decided: Callable[[Peer], None]) -> None:
        self._broker = broker
        self.now_us = now_us
        self._decided = decided
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "leveret-passwords")
        # (when they are looked at, a number that grows, whose they are)
        self._waiting: list[tuple[int, int, _Attempt]] = []
        self._numbers = itertools.count()
        self._wakeup = Wakeup(self._loop, now_us, self.ring)
        self._line: FairQueue[_Attempt] = FairQueue()  # for the thread
        self._sweep_at = SWEEP_MIN
        self._is_hashing = self._is_set = False
        broker.on_login = self._begin

    async def on_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Do what takes as long as a password."""
        return await self._loop.run_in_executor(self._thread, function, *arguments)

    async def check(self, address: str, user: str, password: str, due_us: int = 0) -> bool | None:
        """Whether this is the user's password; None: it was not looked at, as too many of them wait already.

        address: "" = nobody's, who never has to wait; due_us: of the Held that came of the same attempt before. Held if
        it is too early.
        """
        call = _Call(self, address, user, password, due_us)
        if self._broker.users.is_slow:
            self._queue(call)
        else:
            self._look(call)
        return await call.answer

    def stop(self) -> None:
        """Logins that wait still will not be decided."""
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, connection: Connection) -> None:
        assert isinstance(connection, Peer)
        assert connection.login is not None
        attempt = _Attempt(self, connection, connection.login)
        if attempt.due_us:
            self.wait(attempt)
        else:
            self._queue(attempt)

    # -- the timer -----------------------------------------------------------------------------------------------------

    def wait(self, attempt: _Attempt) -> None:
        """Its turn is at `due_us`."""
        heappush(self._waiting, (attempt.due_us, next(self._numbers), attempt))
        self._set()

    def next_us(self) -> int:
        """When the next login is looked at; 0: none waits."""
        return self._waiting[0][0] if self._waiting else 0

    def ring(self) -> None:
        """Look at the logins whose wait is over."""
        now_us = self.now_us()
        while self._waiting and self._waiting[0][0] <= now_us:
            attempt = heappop(self._waiting)[2]
            if self._broker.users.is_slow:
                self._queue(attempt)
            else:
                self._look(attempt)
        self._set()

    def _set(self) -> None:
        due_us = self.next_us()
        if due_us and not 0 < self._wakeup.due_us <= due_us:
            self._wakeup.set(due_us)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _queue(self, attempt: _Attempt) -> None:
        if self._line.count >= self._sweep_at:
            self._line.keep(lambda each: not each.is_over())
            self._sweep_at = max(SWEEP_MIN, 2 * self._line.count)
        self._line.add(network(attempt.address), attempt)
        self._look_soon()

    def _look_soon(self) -> None:
        """Later: whoever calls is in the middle of a connection's turn, and each of them has a turn of its own."""
        if self._line.count and not self._is_hashing and not self._is_set:
            self._is_set = True
            self._loop.call_soon(self._look_at_next)

    def _look_at_next(self) -> None:
        self._is_set = False
        found = self._line.pop()
        if found is not None:
            self._look(found[1])
        self._look_soon()

    def _look(self, attempt: _Attempt) -> None:
        """It is its turn. Who waited for the thread is asked only now whether it may: those before it have failed."""
        if attempt.is_over():
            return
        now_us = self.now_us()
        if not attempt.due_us and attempt.address:
            wait_us = self._broker.login_throttle.wait_us(attempt.address, attempt.user, now_us)
            if wait_us < 0:
                attempt.decided(None)
                return
            attempt.due_us = now_us + wait_us
        if attempt.due_us > now_us:
            attempt.held()
            return
        users = self._broker.users
        user = users.by_name.get(attempt.user)
        is_right = users.quick_answer(attempt.user, attempt.password)
        if is_right is not None:
            attempt.decided(is_right)
            return
        self._is_hashing = True
        work = self._loop.run_in_executor(self._thread, users.slow(attempt.user).accepts, attempt.password)

        def hashed(done: asyncio.Future[bool]) -> None:
            self._is_hashing = False
            is_same = user is not None and users.by_name.get(attempt.user) is user
            self._look_soon()
            attempt.decided(is_same and not done.cancelled() and done.result())

        work.add_done_callback(hashed)

    def decide(self, peer: Peer, is_right: bool | None) -> None:
        """A connection's login is over."""
        handshake.resume(peer, is_right, self.now_us())
        self._decided(peer)
