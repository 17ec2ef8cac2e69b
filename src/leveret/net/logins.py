"""Logins that wait: for their turn by a timer, for a password whose check takes long by a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from leveret.broker import handshake
from leveret.broker.broker import Broker
from leveret.broker.peer import Peer
from leveret.session import lifecycle
from leveret.session.connection import Connection

T = TypeVar("T")


class Logins:
    """One thread checks all passwords: who guesses may keep one processor busy, and no more.

    decided: told of a peer whose login is over.
    """

    def __init__(self, broker: Broker, now_us: Callable[[], int], decided: Callable[[Peer], None]) -> None:
        self._broker = broker
        self._now_us = now_us
        self._decided = decided
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "leveret-passwords")
        broker.on_login = self._begin

    async def on_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Do what takes as long as a password."""
        return await self._loop.run_in_executor(self._thread, function, *arguments)

    def stop(self) -> None:
        """Logins that wait still will not be decided."""
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, peer: Connection) -> None:
        assert isinstance(peer, Peer)
        assert peer.login is not None
        wait_us = peer.login.due_us - self._now_us()
        self._loop.call_later(max(0, wait_us) / 1e6, self._check, peer)

    def _check(self, peer: Peer) -> None:
        login = peer.login
        if login is None or peer.state == lifecycle.CLOSED:
            return  # nobody waits for the answer
        user = self._broker.users.candidate(login.user)
        if user.is_slow:
            work = self._loop.run_in_executor(self._thread, user.accepts, login.password)
            work.add_done_callback(lambda done: self._decide(peer, not done.cancelled() and done.result()))
        else:
            self._decide(peer, user.accepts(login.password))

    def _decide(self, peer: Peer, is_right: bool) -> None:
        handshake.resume(peer, is_right, self._now_us())
        self._decided(peer)
