"""Virtual hosts (RabbitMQ, Virtual Hosts)."""

from __future__ import annotations

from leveret.broker.storage.definitions import PERMISSION, VHOST, Definition
from leveret.broker.vhost_removal import VHostRemoval
from leveret.control.command import Command, Query
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request
from leveret.control.sliced import Sliced, Steps
from leveret.control.validation.checks import user_named, vhost_named


class AddVhost(Command):
    """Add a virtual host, or change an existing one; fields that are not given stay as they are."""

    name: str
    description: str | None = None
    tags: tuple[str, ...] | None = None
    creator: str = ""  # a user who gets full permissions in it
    tracing: bool | None = None  # turns its firehose on or off

    def run(self, node: BrokerNode) -> None:
        if not self.name:
            raise bad_request("vhost name should not be empty")
        if self.creator:
            user_named(node, self.creator)
        leaving = node.broker.vhosts.get(self.name)
        if leaving is not None and leaving.is_leaving:
            raise bad_request(f"vhost '{self.name}' is being deleted")
        definitions = node.broker.definitions
        before = definitions.get(VHOST, self.name) or {"name": self.name, "description": "", "tags": []}
        described: Definition = {} if self.description is None else {"description": self.description}
        tagged: Definition = {} if self.tags is None else {"tags": list(self.tags)}
        definitions.put(VHOST, {**before, **described, **tagged})
        if self.creator:
            anything: Definition = {"configure": ".*", "write": ".*", "read": ".*"}
            definitions.put(PERMISSION, {"user": self.creator, "vhost": self.name, **anything})
        if self.tracing is not None:
            node.broker.trace(self.name, self.tracing)


class DeleteVhost(Command):
    """Delete a virtual host with everything in it; its connections are closed."""

    name: str

    def run(self, node: BrokerNode) -> object:
        vhost_named(node, self.name)
        for peer in node.host.peers():
            if peer.vhost.name == self.name:
                node.host.close(peer, f"vhost '{self.name}' is deleted")
        return Sliced(self._steps(node.broker.remove_vhost(self.name)))

    def _steps(self, removal: VHostRemoval) -> Steps[object]:
        while not removal.is_over:
            removal.step()
            yield
        return None


class SetVhostTags(Command):
    """Replace the tags of a virtual host."""

    name: str
    tags: tuple[str, ...] = ()

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.name)
        definition = node.broker.definitions.get(VHOST, self.name)
        assert definition is not None
        node.broker.definitions.put(VHOST, {**definition, "tags": list(self.tags)})


class CheckVhost(Query):
    """Check that a virtual host exists."""

    vhost: str

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)


class TraceOn(Command):
    """Turn the firehose of a virtual host on. It is off again after the next start, as in RabbitMQ."""

    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        node.broker.trace(self.vhost, True)


class TraceOff(Command):
    """Turn the firehose of a virtual host off."""

    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        node.broker.trace(self.vhost, False)
