"""rabbitmq-diagnostics: what it has besides rabbitmqctl's commands, and which of those it has, too."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import Spec

SHARED: Final = frozenset({
    "help", "version", "autocomplete", "wait", "cluster_status", "list_user_limits", "list_users", "list_permissions",
    "list_topic_permissions", "list_user_permissions", "list_user_topic_permissions", "list_vhosts", "list_bindings",
    "list_channels", "list_connections", "list_consumers", "list_exchanges", "list_queues",
    "list_unresponsive_queues", "list_node_auth_attempt_stats", "ping", "report", "status", "list_global_parameters",
    "list_parameters", "list_operator_policies", "list_policies", "list_vhost_limits", "environment",
    "list_feature_flags", "node_health_check",
})  # fmt: skip
"""Commands of rabbitmqctl that rabbitmq-diagnostics knows as well."""

SPECS: Final[tuple[Spec, ...]] = ()
