"""rabbitmq-upgrade: sending clients away before an upgrade, and letting them in again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from leveret.cli.ctl.spec import Spec

GROUP: Final = "Upgrade"
SHARED: Final = frozenset({"help"})
"""Commands of rabbitmqctl that rabbitmq-upgrade knows as well."""


def _nothing(name: str, help: str) -> Spec:
    """It is asked whether the broker answers, no more."""
    return Spec(name, GROUP, help, call="ping", show=lambda answer, given: "")


_DRAIN: Final = Spec(
    "drain_node", GROUP, "Maintenance: close all connections, and let nobody connect until it is revived.",
    banner="Will put node {node} into maintenance mode. The node will no longer serve any client traffic!",
    is_ours=True,
)  # fmt: skip
_REVIVE: Final = Spec(
    "revive_node", GROUP, "End maintenance: serve clients again.",
    banner="Will put node {node} back into regular operating mode. The node will again serve client traffic and host "
    "primary queue replicas.",
    is_ours=True,
)  # fmt: skip

SPECS: Final = (_DRAIN, _REVIVE)
"""In `leveret ctl`, where "drain" moves what is left in a queue."""

UPGRADE_SPECS: Final = (
    replace(_DRAIN, name="drain", call="drain_node", is_ours=False),
    replace(_REVIVE, name="revive", call="revive_node", is_ours=False),
    _nothing("await_online_quorum_plus_one", "Nothing to wait for: queues live on one node."),
    _nothing("await_online_synchronized_mirror", "Nothing to wait for: queues live on one node."),
    _nothing("post_upgrade", "Nothing to do."),
)  # fmt: skip
