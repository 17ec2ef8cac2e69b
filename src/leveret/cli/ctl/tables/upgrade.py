"""rabbitmq-upgrade: close client connections before an upgrade, and accept them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from leveret.cli.ctl.spec import Spec

GROUP: Final = "Upgrade"
SHARED: Final = frozenset({"help"})
"""Commands of rabbitmqctl that rabbitmq-upgrade has as well."""


def _nothing(name: str, help: str) -> Spec:
    """Return the spec of a command that only checks that the broker answers."""
    return Spec(name, GROUP, help, call="ping", show=lambda answer, given: "")


_DRAIN: Final = Spec(
    "drain_node", GROUP, "Enter maintenance mode: close all connections and accept none until `revive`.",
    banner="Will put node {node} into maintenance mode. The node will no longer serve any client traffic!",
    is_ours=True,
)  # fmt: skip
_REVIVE: Final = Spec(
    "revive_node", GROUP, "Leave maintenance mode and serve clients again.",
    banner="Will put node {node} back into regular operating mode. The node will again serve client traffic and host "
    "primary queue replicas.",
    is_ours=True,
)  # fmt: skip

SPECS: Final = (_DRAIN, _REVIVE)
"""In `leveret ctl`, where "drain" moves the messages of a queue."""

UPGRADE_SPECS: Final = (
    replace(_DRAIN, name="drain", call="drain_node", is_ours=False),
    replace(_REVIVE, name="revive", call="revive_node", is_ours=False),
    _nothing("await_online_quorum_plus_one", "Returns at once: queues live on a single node."),
    _nothing("await_online_synchronized_mirror", "Returns at once: queues live on a single node."),
    _nothing("post_upgrade", "No-op."),
)  # fmt: skip
