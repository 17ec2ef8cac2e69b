"""Checks passwords: logins that failed before wait for a timer, slow password checks run on a thread."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

from leveret.broker.access import handshake
from leveret.broker.access.login import Login
from leveret.broker.access.login_throttle import network
from leveret.broker.broker import Broker
from leveret.broker.peer import Peer
from leveret.net.connections.fair_queue import FairQueue
from leveret.net.wakeup import Wakeup
from leveret.session import lifecycle

T = TypeVar("T")

# closed connections are removed from the thread's queue at this length, afterwards at twice the length that is left
SWEEP_MIN: Final = 1024


class LoginHeld(Exception):
    """Raised for a call whose password may not be checked yet."""

    def __init__(self, due_us: int, wait_us: int) -> None:
        super().__init__(f"too many failed logins of this user: wait {wait_us} µs")
        self.due_us = due_us  # when it may be checked
        self.wait_us = wait_us  # how long that is from now


class _Attempt:
    """The login of one connection."""

    def __init__(self, logins: Logins, peer: Peer, login: Login) -> None:
        self._logins = logins
        self._peer = peer
        self.address, self.user, self.password = peer.host, login.user, login.password
        self.due_us = int(login.due_us)  # when its password may be checked, 0 = not decided yet

    def is_over(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._peer.login is None or self._peer.state == lifecycle.CLOSED

    def held(self) -> None:
        """Postpone the attempt to `due_us`."""
        self._logins.wait(self)

    def decided(self, is_right: bool | None) -> None:
        """Report the result. None: the password was not checked."""
        self._logins.decide(self._peer, is_right)


class _Call(_Attempt):
    """A password check that belongs to no AMQP connection; its caller waits for `due_us` by itself."""

    def __init__(self, logins: Logins, address: str, user: str, password: str, due_us: int) -> None:
        self._logins = logins
        self.address, self.user, self.password, self.due_us = address, user, password, due_us
        self.answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

    def is_over(self) -> bool:
        return self.answer.done()

    def held(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(LoginHeld(self.due_us, self.due_us - self._logins.now_us()))

    def decided(self, is_right: bool | None) -> None:
        if not self.answer.done():
            self.answer.set_result(is_right)


class Logins:
    """Checks passwords, the slow ones on one thread, so that guessing keeps at most one processor busy.

    The addresses that wait for the thread take turns, so one of them delays the others by two passwords at most.
    """

    def __init__(self, broker: Broker, now_us: Callable[[], int], decided: Callable[[Peer], None]) -> None:
        self._broker = broker
        self.now_us = now_us
        self._decided = decided  # called with a peer whose login has been decided
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "leveret-passwords")
        # (when it is due, a growing number, the attempt)
        self._waiting: list[tuple[int, int, _Attempt]] = []
        self._numbers = itertools.count()
        self._wakeup = Wakeup(self._loop, now_us, self.ring)
        self._line: FairQueue[_Attempt] = FairQueue()  # attempts that wait for the thread
        self._sweep_at = SWEEP_MIN
        self._is_hashing = self._is_set = False
        broker.on_login = self._begin

    async def on_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that takes as long as a password check on the passwords' thread."""
        return await self._loop.run_in_executor(self._thread, function, *arguments)

    async def check(self, address: str, user: str, password: str, due_us: int = 0) -> bool | None:
        """Whether this is the user's password; None if it was not checked, since too many attempts wait already.

        address: "" for a caller that never has to wait. due_us: from the Held that the same attempt raised before.
        Raises Held if it is too early.
        """
        call = _Call(self, address, user, password, due_us)
        if self._broker.users.is_slow:
            self._queue(call)
        else:
            self._look(call)
        return await call.answer

    def stop(self) -> None:
        """Stop the thread; logins that still wait are never decided."""
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, connection: Peer) -> None:
        assert connection.login is not None
        attempt = _Attempt(self, connection, connection.login)
        if attempt.due_us:
            self.wait(attempt)
        else:
            self._queue(attempt)

    # -- the timer -----------------------------------------------------------------------------------------------------

    def wait(self, attempt: _Attempt) -> None:
        """Check this attempt at its `due_us`."""
        heappush(self._waiting, (attempt.due_us, next(self._numbers), attempt))
        self._set()

    def next_us(self) -> int:
        """When the next login is due, 0 if none waits."""
        return self._waiting[0][0] if self._waiting else 0

    def ring(self) -> None:
        """Check the logins whose wait is over."""
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
        """Check the next attempt in a later turn: the caller may be in the middle of a connection's turn."""
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
        """Check an attempt whose turn it is.

        The throttle is asked only now, since attempts before this one may have failed while it waited for the thread.
        """
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
        """Resume a connection whose login has been decided."""
        handshake.resume(peer, is_right, self.now_us())
        self._decided(peer)
