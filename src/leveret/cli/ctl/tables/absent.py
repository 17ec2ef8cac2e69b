"""Commands of rabbitmqctl that leveret does not have, with the reasons that they print."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import PositionalArgument, Spec

ONE_NODE: Final = "leveret runs as a single node and has no clusters"
NO_MIRRORS: Final = "leveret runs as a single node and has no mirrored queues"
NO_ERLANG: Final = "leveret does not run on Erlang and cannot evaluate expressions"
NO_SECRETS: Final = "leveret's configuration has no encrypted values"
NO_MNESIA: Final = "leveret has no Mnesia tables; `leveret store` inspects a data directory"
ANYTHING: Final = (PositionalArgument("argument", "", "rest", is_optional=True),)

REASONS: Final = {
    "change_cluster_node_type": ("Cluster", ONE_NODE),
    "force_boot": ("Cluster", ONE_NODE),
    "forget_cluster_node": ("Cluster", ONE_NODE),
    "join_cluster": ("Cluster", ONE_NODE),
    "rename_cluster_node": ("Cluster", ONE_NODE),
    "update_cluster_nodes": ("Cluster", ONE_NODE),
    "cancel_sync_queue": ("Replication", NO_MIRRORS),
    "sync_queue": ("Replication", NO_MIRRORS),
    "schema_info": ("Monitoring and health checks", NO_MNESIA),
    "decode": ("Configuration", NO_SECRETS),
    "encode": ("Configuration", NO_SECRETS),
    "eval": ("Operations", NO_ERLANG),
    "eval_file": ("Operations", NO_ERLANG),
    "exec": ("Operations", NO_ERLANG),
}

SPECS: Final = tuple(
    Spec(name, group, why, ANYTHING, call="", absent=why) for name, (group, why) in REASONS.items()
)
