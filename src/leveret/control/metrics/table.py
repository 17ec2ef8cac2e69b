"""All groups of metrics, and the families in which they are requested. docs/reference/metrics.md is generated from
it."""

from __future__ import annotations

from typing import Final

from leveret.control.metrics.metric import MetricGroup
from leveret.control.metrics.node import BUILD, IDENTITY, NODES
from leveret.control.metrics.objects import OBJECTS
from leveret.control.metrics.own import OWN

GROUPS: Final = (*NODES, *OBJECTS, *OWN)
BY_NAME: Final[dict[str, MetricGroup]] = {group.name: group for group in GROUPS}
# families of RabbitMQ that are several groups here
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "queue_metrics": ("queue_consumer_count", "queue_metrics"),
    "global_counters": ("global_counters", "global_counters_by_type", "global_counters_dead"),
    "leveret_federation": ("leveret_federation_states", "leveret_federation"),
    "leveret_streams": ("leveret_streams", "leveret_stream_names"),
}
# families of RabbitMQ that have no group here, and why; docs/reference/metrics.md lists their names
ABSENT: Final[dict[str, str]] = {
    "ra_metrics": "quorum queues have one copy on one disk; leveret has no Raft",
    "channel_process_metrics": "reductions of Erlang's channel processes",
    "auth_attempt_detailed_metrics": "login attempts by address and user; the HTTP API has them by protocol",
    "erlang_vm_metrics": "leveret has no Erlang",
    "cluster_metrics": "leveret has no cluster",
    "exchange_names": "exchange_bindings names all exchanges",
}
# only included if they are requested by name, as in RabbitMQ
OF_CLUSTER: Final = ("vhost_status", "exchange_bindings")
# included in every answer
ALWAYS: Final = (BUILD.name, IDENTITY.name)


def groups_of(families: list[str]) -> list[str]:
    """Return the groups of these families, each once, in the table's order. Raises KeyError with an unknown one."""
    wanted = set(ALWAYS)
    for family in families:
        if family not in BY_NAME:
            raise KeyError(family)
        wanted.update(FAMILIES.get(family, (family,)))
    return [group.name for group in GROUPS if group.name in wanted]
