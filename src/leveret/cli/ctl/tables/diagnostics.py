"""rabbitmq-diagnostics: its own commands, and those that it shares with rabbitmqctl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leveret.cli.ctl.reports import alarms_report, checked, connected, listeners_report, memory_report
from leveret.cli.ctl.spec import Given, Option, PositionalArgument, Spec, arguments

SHARED: Final = frozenset({
    "help", "version", "autocomplete", "wait", "cluster_status", "list_user_limits", "list_users", "list_permissions",
    "list_topic_permissions", "list_user_permissions", "list_user_topic_permissions", "list_vhosts", "list_bindings",
    "list_channels", "list_ciphers", "list_connections", "list_consumers", "list_exchanges", "list_hashes",
    "list_queues", "list_unresponsive_queues", "list_node_auth_attempt_stats", "ping", "report", "schema_info",
    "status", "list_global_parameters", "list_parameters", "list_operator_policies", "list_policies",
    "list_vhost_limits", "environment", "list_feature_flags", "node_health_check", "federation_status",
})  # fmt: skip
"""Commands of rabbitmqctl that rabbitmq-diagnostics has as well."""

HEALTH: Final = "Health checks"
NODE: Final = "Node"
RUNNING: Final = "RabbitMQ on node {node} is fully booted and running"
SINGLE: Final = "Node {node} seems to be the only one in a single node cluster, the check does not apply"
ABSENT: Final = {
    "leveret does not run on Erlang, so there is nothing to show":
        "erlang_version erlang_cookie_hash erlang_cookie_sources maybe_stuck observer remote_shell "
        "runtime_thread_stats reclaim_quorum_memory consume_event_stream command_line_arguments os_env",
    "use the system's own tools: ip address, getent hosts":
        "list_network_interfaces resolve_hostname resolver_info",
    "leveret logs to standard error; read the log where the broker was started (such as journalctl)":
        "log_tail log_tail_stream",
    "each queue lives on a single node; use list_queues":
        "quorum_status stream_status",
    "the TLS settings are in the configuration; check_certificate_expiration checks the certificates":
        "certificates tls_versions",
    "use the HTTP API: /api/auth/attempts":
        "enable_auth_attempt_source_tracking disable_auth_attempt_source_tracking reset_node_auth_attempt_metrics",
}  # fmt: skip
ANYTHING: Final = (PositionalArgument("argument", "", "rest", is_optional=True),)


def _said(text: str) -> Callable[[Any, Given], str]:
    return lambda answer, given: text.format_map(given)


def _check(name: str, help: str, asked: str, well: str, parameter: str = "", **options: Any) -> Spec:
    """Return the spec of a health check of the HTTP API, under rabbitmq-diagnostics' name."""
    return Spec(
        f"check_{name}", HEALTH, help, arguments(parameter), banner=asked, call="health_check",
        fields=lambda given: {"check": name.removeprefix("if_").replace("_", "-")}, show=checked(well), **options,
    )  # fmt: skip


SPECS: Final = (
    _check(
        "alarms", "Fail if an alarm is in effect.",
        "Asking node {node} to report any local resource alarms ...",
        "Node {node} reported no alarms, local or clusterwide",
    ),
    _check(
        "local_alarms", "Fail if an alarm is in effect.",
        "Asking node {node} to report any local resource alarms ...", "Node {node} reported no local alarms",
    ),
    _check(
        "certificate_expiration", "Fail if a TLS certificate expires soon.",
        "Checking certificate expiration on node {node} ...", "No certificates are expiring within {within} {unit}.",
        options=(
            Option("within", "argument", "int", "n", default=4),
            Option("unit", "unit", metavar="days | weeks | months | years", default="weeks"),
        ),
    ),
    _check("if_node_is_mirror_sync_critical", "Always passes: leveret runs as a single node.",
           "Checking if node {node} is critical for data safety of any classic mirrored queues ...", SINGLE),
    _check("if_node_is_quorum_critical", "Always passes: leveret runs as a single node.",
           "Checking if node {node} is critical for quorum of any quorum queues ...", SINGLE),
    _check(
        "port_listener", "Fail if nothing listens on a port.",
        "Asking node {node} if there's an active listener on port {port} ...",
        "A listener for port {port} is running on node {node}.", "port:argument#",
    ),
    _check(
        "protocol_listener", "Fail if nothing listens for a protocol.",
        "Asking node {node} if there's an active listener for protocol {protocol} ...",
        "A listener for protocol {protocol} is running on node {node}.", "protocol:argument",
    ),
    _check("virtual_hosts", "Always passes: virtual hosts run as long as the broker does.",
           "Checking if all vhosts are running on node {node} ...", "Node {node} reported all vhosts as running"),
    Spec("check_running", HEALTH, "Fail if the broker is not serving clients.", call="status",
         banner="Checking if RabbitMQ is running on node {node} ...", show=_said(RUNNING)),
    Spec("check_port_connectivity", HEALTH, "Fail if a listener cannot be reached.", call="status", show=connected,
         banner="Testing TCP connections to all active listeners on node {node} ..."),
    Spec("is_running", NODE, "Report whether the broker is serving clients.", call="status",
         banner="Asking node {node} for its status ...", show=_said(RUNNING)),
    Spec("is_booting", NODE, "Report the boot state: a broker that answers has finished booting.", call="status",
         banner="Asking node {node} for its boot status ...",
         show=_said("RabbitMQ on node {node} is fully booted (check with is_running), stopped or has not started "
                    "booting yet")),
    Spec("alarms", NODE, "List alarms in effect.", call="status", show=alarms_report,
         banner="Asking node {node} to report any known resource alarms ..."),
    Spec("listeners", NODE, "List the broker's listeners.", call="status", show=listeners_report,
         banner="Asking node {node} to report its protocol listeners ..."),
    Spec("memory_breakdown", NODE, "Show a breakdown of memory use.", (),
         (Option("unit", "", metavar="gb | gib | mb | …", default="gb"),), show=memory_report,
         banner="Reporting memory breakdown on node {node}..."),
    Spec("server_version", NODE, "Print the RabbitMQ version reported to clients.", call="version",
         banner="Asking node {node} for its RabbitMQ version...", show=lambda answer, given: str(answer["version"])),
    Spec("log_location", NODE, "Show where the log is written.", call="status",
         banner="Log file location(s) on node {node} ...",
         show=lambda answer, given: "\n".join(answer["log_files"])),
    Spec("discover_peers", NODE, "No-op: leveret runs as a single node and has no peers.", call="ping",
         banner="Discovering peers nodes ...", show=_said("No peers discovered")),
    Spec("cipher_suites", NODE, "List the available TLS cipher suites.", call="list_ciphers",
         banner="Listing available cipher suites ...", show=lambda answer, given: "\n".join(answer)),
    *(Spec(name, NODE, why, ANYTHING, call="", absent=why) for why, names in ABSENT.items() for name in names.split()),
)  # fmt: skip
