"""Virtual hosts (RabbitMQ, Virtual Hosts)."""

from __future__ import annotations

from leveret.broker.definitions import PERMISSION, VHOST, Definition
from leveret.control.command import Command
from leveret.control.node import Node
from leveret.control.refusal import not_found


class AddVhost(Command):
    """Add a virtual host, or describe one anew. creator: a user who may do everything in it from the beginning."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    creator: str = ""

    def run(self, node: Node) -> object:
        definitions = node.broker.definitions
        definitions.put(VHOST, {"name": self.name, "description": self.description, "tags": list(self.tags)})
        if self.creator:
            anything: Definition = {"configure": ".*", "write": ".*", "read": ".*"}
            definitions.put(PERMISSION, {"user": self.creator, "vhost": self.name, **anything})
        return None


class DeleteVhost(Command):
    """Delete a virtual host with everything in it; its connections are closed."""

    name: str

    def run(self, node: Node) -> object:
        if self.name not in node.broker.vhosts:
            raise not_found(f"no virtual host '{self.name}'")
        for peer in node.host.peers():
            if peer.vhost.name == self.name:
                node.host.close(peer, f"vhost '{self.name}' is deleted")
        node.broker.delete_vhost(self.name)
        return None
