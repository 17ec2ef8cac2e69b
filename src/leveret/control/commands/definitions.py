"""Export and import of definitions (RabbitMQ, Definitions Export and Import)."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from leveret.broker.broker import Broker
from leveret.control.command import Command, Query
from leveret.control.definitions.document import Document
from leveret.control.definitions.exporting import exported
from leveret.control.definitions.importing import Import
from leveret.control.node import BrokerNode
from leveret.control.passwords import password_fields
from leveret.control.refusal import not_found
from leveret.control.sliced import Sliced, Steps

# checks that are made with pauses; if definitions keep changing meanwhile, the last check runs without them
CHECKS_MAX: Final = 3


class ExportDefinitions(Query):
    """Return all definitions, or those of one virtual host, in the format of RabbitMQ's definitions file."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        _check_vhost(node, self.vhost)
        return Sliced(exported(node.broker, self.vhost))


class ImportDefinitions(Command):
    """Apply a definitions file completely or not at all; answers with warnings about what was ignored."""

    definitions: Document
    vhost: str | None = None  # imports everything into this virtual host, whatever the file says
    user: str | None = None  # gets full permissions in new virtual hosts
    secrets: ClassVar[tuple[str, ...]] = ("definitions",)

    def run(self, node: BrokerNode) -> object:
        return self._imported(node)

    async def _imported(self, node: BrokerNode) -> object:
        for entry in self.definitions.users:
            if entry.password and entry.password_hash is None:
                # on a thread, as hashing may take long
                fields = await password_fields(node, entry.password)
                entry.password, entry.password_hash = None, str(fields["password_hash"])
                entry.hashing_algorithm = str(fields["hashing_algorithm"])
        _check_vhost(node, self.vhost)
        return Sliced(self._steps(node))

    def _steps(self, node: BrokerNode) -> Steps[object]:
        """Check and apply in steps. From `begin` on, the journal ensures all changes, even if the broker crashes."""
        for _ in range(CHECKS_MAX):
            plan = self.plan(node.broker)
            yield from plan.steps
            if not plan.is_stale():
                break
        else:
            plan = self.plan(node.broker).check()
        imports = node.broker.imports
        number = imports.begin(msgspec.json.encode(self).decode())
        yield from plan.changes(node.host.now_us)
        imports.end(number)
        return {"warnings": plan.warnings}

    def plan(self, broker: Broker) -> Import:
        """Return the import, not checked yet."""
        return Import(broker, self.definitions, self.vhost, self.user or "")


def _check_vhost(node: BrokerNode, name: str | None) -> None:
    if name is not None and name not in node.broker.vhosts:
        raise not_found("vhost_not_found")
