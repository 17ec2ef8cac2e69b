"""Commands that start, stop, suspend and drain the broker."""

from __future__ import annotations

import gc
from collections.abc import Awaitable
from typing import Final

from leveret.control.command import Command, Query
from leveret.control.node import BrokerNode
from leveret.control.refusal import CONFLICT, NOT_RUNNING, Refused, bad_request

AWAKE: Final = (
    "this command requires the 'rabbit' app to be stopped on the target node. Stop it with 'rabbitmqctl stop_app'."
)


class AwaitStartup(Query):
    """Wait until the broker accepts connections."""

    def run(self, node: BrokerNode) -> object:
        return node.host.serving.wait()


class AwaitOnlineNodes(Query):
    """Wait until there are `count` nodes. leveret has always one node, so more than one is refused."""

    count: int

    def run(self, node: BrokerNode) -> object:
        if self.count < 1:
            raise bad_request("Argument must be a positive integer")
        if self.count > 1:
            raise Refused(CONFLICT, "leveret runs as a single node: no others can join")
        return node.host.serving.wait()


class Stop(Command):
    """Shut the broker down. The answer comes before the process has ended."""

    def run(self, node: BrokerNode) -> None:
        node.host.stop()


class StopApp(Command):
    """Stop the broker, but not its process: the control socket comes back and accepts start_app (stopped_app.py)."""

    def run(self, node: BrokerNode) -> None:
        node.host.stop(keeps_process=True)


class StartApp(Command):
    """Start a broker that was stopped by stop_app; no effect on a running one."""

    def run(self, node: BrokerNode) -> object:
        return node.host.serving.wait()


class Reset(Command):
    """Delete all definitions and messages of a broker that was stopped by stop_app; a running one refuses."""

    def run(self, node: BrokerNode) -> object:
        raise Refused(NOT_RUNNING, AWAKE)


class SuspendListeners(Command):
    """Accept no new connections; existing ones stay."""

    def run(self, node: BrokerNode) -> None:
        node.host.listening.suspend()


class ResumeListeners(Command):
    """Accept new connections again."""

    def run(self, node: BrokerNode) -> object:
        return _served_again(node.host.listening.resume())


async def _served_again(resumed: Awaitable[None]) -> None:
    try:
        await resumed
    except OSError as error:
        raise Refused(CONFLICT, f"can't listen: {error.strerror or error}") from None


class DrainNode(Command):
    """Begin maintenance (rabbitmq-upgrade drain): refuse new connections and close all existing ones."""

    def run(self, node: BrokerNode) -> None:
        node.host.shutdown.drain()


class ReviveNode(Command):
    """End maintenance (rabbitmq-upgrade revive): serve clients again."""

    def run(self, node: BrokerNode) -> object:
        return _served_again(node.host.shutdown.revive())


class ForceGc(Command):
    """Return freed memory to the operating system."""

    def run(self, node: BrokerNode) -> None:
        gc.collect(0)
        node.host.alarms.trim_memory()
