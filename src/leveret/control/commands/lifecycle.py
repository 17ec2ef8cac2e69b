"""Starting, stopping, and what is between them."""

from __future__ import annotations

import gc
from collections.abc import Awaitable
from typing import Final

from leveret.control.command import Command, Query
from leveret.control.node import Node
from leveret.control.refusal import CONFLICT, NOT_RUNNING, Refused, bad_request

AWAKE: Final = (
    "this command requires the 'rabbit' app to be stopped on the target node. Stop it with 'rabbitmqctl stop_app'."
)


class AwaitStartup(Query):
    """Answered when the broker accepts connections."""

    def run(self, node: Node) -> object:
        return node.host.serving.wait()


class AwaitOnlineNodes(Query):
    """Answered when there are so many nodes. There is never more than one."""

    count: int

    def run(self, node: Node) -> object:
        if self.count < 1:
            raise bad_request("Argument must be a positive integer")
        if self.count > 1:
            raise Refused(CONFLICT, "leveret is one node: there will be no more")
        return node.host.serving.wait()


class Stop(Command):
    """Stop the broker in order. Its process has ended some time after the answer."""

    def run(self, node: Node) -> object:
        node.host.stop()
        return None


class StopApp(Command):
    """Stop the broker, but not its process: the control socket comes back, and answers start_app (stopped_app.py)."""

    def run(self, node: Node) -> object:
        node.host.stop(keeps_process=True)
        return None


class StartApp(Command):
    """Start a broker that stop_app has stopped; one that serves goes on."""

    def run(self, node: Node) -> object:
        return node.host.serving.wait()


class Reset(Command):
    """Forget everything: only of a broker that stop_app has stopped."""

    def run(self, node: Node) -> object:
        raise Refused(NOT_RUNNING, AWAKE)


class SuspendListeners(Command):
    """Accept no new connections; those that are there stay."""

    def run(self, node: Node) -> object:
        node.host.listening.suspend()
        return None


class ResumeListeners(Command):
    """Accept connections again."""

    def run(self, node: Node) -> object:
        return _served_again(node.host.listening.resume())


async def _served_again(resumed: Awaitable[None]) -> None:
    try:
        await resumed
    except OSError as error:
        raise Refused(CONFLICT, f"can't listen: {error.strerror or error}") from None


class DrainNode(Command):
    """Maintenance begins (rabbitmq-upgrade drain): no client may connect, and all connections are closed."""

    def run(self, node: Node) -> object:
        node.host.shutdown.drain()
        return None


class ReviveNode(Command):
    """Maintenance is over (rabbitmq-upgrade revive): clients are served again."""

    def run(self, node: Node) -> object:
        return _served_again(node.host.shutdown.revive())


class ForceGc(Command):
    """Give freed memory back to the system."""

    def run(self, node: Node) -> object:
        gc.collect(0)
        node.host.alarms.trim_memory()
        return None
