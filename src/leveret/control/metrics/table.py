"""All groups of metrics, and the names by which they are asked for. docs/reference/metrics.md is made of it."""

from __future__ import annotations

from typing import Final

from leveret.control.metrics.metric import Group
from leveret.control.metrics.node import BUILD, IDENTITY, NODES
from leveret.control.metrics.objects import OBJECTS
from leveret.control.metrics.own import OWN

GROUPS: Final = (*NODES, *OBJECTS, *OWN)
BY_NAME: Final[dict[str, Group]] = {group.name: group for group in GROUPS}
# families of RabbitMQ's that are more than one group here
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "queue_metrics": ("queue_consumer_count", "queue_metrics"),
    "global_counters": ("global_counters", "global_counters_by_type", "global_counters_dead"),
    "leveret_federation": ("leveret_federation_states", "leveret_federation"),
    "leveret_streams": ("leveret_streams", "leveret_stream_names"),
}
# those of RabbitMQ's that have no group here, and why; docs/reference/metrics.md has the names
ABSENT: Final[dict[str, str]] = {
    "ra_metrics": "quorum queues here are one copy on one disk: there is no Raft",
    "channel_process_metrics": "Erlang's reductions of channel processes",
    "auth_attempt_detailed_metrics": "attempts by address and user: the HTTP API has them by protocol",
    "erlang_vm_metrics": "there is no Erlang",
    "cluster_metrics": "there is no cluster",
    "exchange_names": "exchange_bindings has the names of all exchanges",
}
# told only where they are asked for by name, as RabbitMQ does it
OF_CLUSTER: Final = ("vhost_status", "exchange_bindings")
# these are in every answer
ALWAYS: Final = (BUILD.name, IDENTITY.name)


def groups_of(families: list[str]) -> list[str]:
    """The groups that these families are, each once and in the order of the table. KeyError names one that is none."""
    wanted = set(ALWAYS)
    for family in families:
        if family not in BY_NAME:
            raise KeyError(family)
        wanted.update(FAMILIES.get(family, (family,)))
    return [group.name for group in GROUPS if group.name in wanted]
