"""Commands for the node: help, start and stop, status, and feature flags."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.exits import USAGE
from leveret.cli.ctl.reports import cluster_report, environment_report, status_report, well
from leveret.cli.ctl.spec import AnswerTable, Option, PositionalArgument, Spec, arguments, columns
from leveret.cli.ctl.waiting import until_it_has_gone, until_it_serves, until_the_app_has_stopped, when_it_is_up
from leveret.control.refusal import NOT_FOUND

NODES: Final = "Nodes"
MONITORING: Final = "Monitoring and health checks"
FLAGS: Final = "Feature flags"
HELP: Final = "Help"
UNIT: Final = Option("unit", "", metavar="gb | gib | mb | …", default="gb")

SPECS: Final = (
    Spec("help", HELP, "Describe a command.", arguments("command:?"), call=""),
    Spec(
        "version", HELP, "Print the RabbitMQ version reported to clients.",
        show=lambda answer, given: str(answer["version"]),
    ),
    Spec("autocomplete", HELP, "List the commands that begin with a text.", arguments("string:?"), call=""),
    Spec("await_startup", NODES, "Wait until the broker accepts connections.", via=when_it_is_up),
    Spec(
        "wait", NODES, "Wait until the broker accepts connections.", arguments("pidfile:?"),
        (Option("pid", "", "int", "n"),), call="await_startup",
        via=when_it_is_up,
        banner="Waiting for applications 'rabbit_and_plugins' to start on node '{node}'",
        show=lambda answer, given: f"Applications 'rabbit_and_plugins' are running on node '{given['node']}'",
    ),
    Spec(
        "await_online_nodes", NODES, "Wait for a number of nodes; leveret runs as a single node.", arguments("count#"),
        via=when_it_is_up,
        banner="Will wait for at least {count} nodes to join the cluster of {node}. Timeout: 300 seconds.",
    ),
    Spec(
        "stop", NODES, "Stop the broker and wait until it has stopped.", arguments("pidfile:?"), via=until_it_has_gone,
        banner="Stopping and halting node {node} ...",
    ),
    Spec(
        "shutdown", NODES, "Stop the broker and wait until it has stopped.", (),
        (Option("wait", "", "flag"), Option("no-wait", "", "flag")), call="stop",
        via=until_it_has_gone, banner="Shutting down RabbitMQ node {node}",
    ),
    Spec(
        "stop_app", NODES, "Close all connections and drop transient data; the broker still answers `ctl`.",
        via=until_the_app_has_stopped, banner="Stopping rabbit application on node {node} ...",
    ),
    Spec(
        "start_app", NODES, "Serve clients again, after stop_app.", via=until_it_serves,
        banner="Starting node {node} ...",
    ),
    Spec(
        "reset", NODES, "Delete all data: messages, queues, users. Requires stop_app first.",
        banner="Resetting node {node} ...",
    ),
    Spec(
        "force_reset", NODES, "Same as reset.", call="reset",
        banner="Forcefully resetting node {node} ...",
    ),
    Spec(
        "rotate_logs", NODES, "No-op: leveret logs to standard error.", call="",
        absent="This command does not rotate logs anymore [deprecated]",
    ),
    Spec(
        "hipe_compile", NODES, "No-op, as in RabbitMQ.", arguments("directory:"), call="",
        show=lambda answer, given: "This command is a no-op. HiPE is no longer supported by modern Erlang versions",
    ),
    Spec(
        "cluster_status", "Cluster", "Show the cluster status: a single node.", show=cluster_report,
        banner="Cluster status of node {node} ...",
    ),
    Spec(
        "ping", MONITORING, "Check that the broker responds.",
        banner="Will ping {node}. This only checks if the OS process is running and registered with epmd. "
        "Timeout: {timeout_ms} ms.",
        show=lambda answer, given: "Ping succeeded",
    ),
    Spec(
        "status", MONITORING, "Show the broker's status.", (), (UNIT,), banner="Status of node {node} ...",
        show=status_report,
    ),
    Spec(
        "report", MONITORING, "Print a full report for troubleshooting.", call="status", show=status_report,
        banner="Reporting server status of node {node} ...",
    ),
    Spec(
        "environment", "Configuration", "Show the settings.", show=environment_report,
        banner="Application environment of node {node} ...",
    ),
    Spec(
        "node_health_check", MONITORING, "Check the broker's health; check_running and check_alarms are more specific.",
        call="status", banner="Timeout: 70 seconds ...\nChecking health of node {node} ...", show=well,
    ),
    Spec(
        "list_node_auth_attempt_stats", MONITORING, "Count login attempts.", call="list_auth_attempts",
        banner='Listing authentication\n attempts for node "{node}" ...',
        show=AnswerTable(
            columns("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"),
            ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"),
        ),
    ),
    Spec(
        "list_hashes", "Configuration", "List the hash functions that Python supports.",
        banner="Listing supported hash algorithms ...", show=lambda answer, given: f"[{','.join(answer)}]",
    ),
    Spec(
        "list_ciphers", "Configuration", "List the available TLS cipher suites.",
        banner="Listing supported ciphers ...", show=lambda answer, given: f"[{','.join(answer)}]",
    ),
    Spec(
        "list_feature_flags", FLAGS, "List feature flags: all are enabled.",
        (PositionalArgument("column", "columns", "columns", is_optional=True),),
        banner="Listing feature flags ...",
        show=AnswerTable(columns("name", "state", "stability", "provided_by", "desc", "doc_url"), ("name", "state")),
    ),
    Spec(
        "enable_feature_flag", FLAGS, "No-op: all feature flags are enabled.", arguments("feature_flag:name"),
        banner="{enabling} ...", exits={NOT_FOUND: USAGE},
        words=lambda given: {
            "enabling": "Enabling all feature flags"
            if given["feature_flag"] == "all"
            else f'Enabling feature flag "{given["feature_flag"]}"'
        },
    ),
)  # fmt: skip
