"""The texts of status, cluster_status, environment and the health checks."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from leveret.cli.ctl.exits import DATA, UNAVAILABLE, Failed
from leveret.cli.ctl.spec import Given

UNITS: Final = {"bytes": 1} | {
    name: base**power
    for base, ending in ((1000, "b"), (1024, "ib"))
    for power, letter in enumerate("kmgtp", 1)
    for name in (letter + ending,)
}
CONNECT_S_MAX: Final = 10.0
# addresses to which a client can connect, for those that mean all interfaces
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def _section(title: str, lines: Iterable[str]) -> str:
    """Return a title and its lines; "(none)" if there are no lines."""
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    return f"{bold}{title}{plain}\n\n" + "\n".join(list(lines) or ["(none)"]) + "\n"


def _listed(items: Iterable[str]) -> list[str]:
    return [f" * {item}" for item in items]


def _amount(octets: int, unit: str) -> str:
    if unit not in UNITS:
        raise Failed(f"Error:\nunit '{unit}' is not supported. Please use one of: {', '.join(UNITS)}", DATA)
    return f"{octets / UNITS[unit]:.4g} {unit}"


def _interface(listener: Any) -> str:
    return (
        f"Interface: {_bracketed(listener['interface'])}, port: {listener['port']}, "
        f"protocol: {listener['protocol']}, purpose: {listener['purpose']}"
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _alarms(alarms: Iterable[Any]) -> list[str]:
    words = {"disk": "Free disk space alarm", "memory": "Memory alarm"}
    return [f"{words.get(alarm['resource'], alarm['resource'])} on node {alarm['node']}" for alarm in alarms]


def status_report(answer: Any, given: Given) -> str:
    """Return the broker's state with rabbitmqctl's sections and wording."""
    unit, files, totals = str(given.get("unit", "gb")).lower(), answer["file_descriptors"], answer["totals"]
    memory = answer["memory"]["total"]["rss"]
    sections = [
        ("Runtime", [
            f"OS PID: {answer['pid']}",
            f"OS: {answer['os']}",
            f"Uptime (seconds): {answer['uptime']}",
            f"Wall clock ahead of the broker's time (seconds): {answer['wall_clock_ahead_s']:.3f}",
            f"Is under maintenance?: {str(answer['is_under_maintenance']).lower()}",
            f"RabbitMQ version: {answer['rabbitmq_version']}",
            f"leveret version: {answer['leveret_version']} ({answer['core']} core)",
            f"Node name: {given['node']}",
            f"Python version: {answer['python_version']}",
            f"Crypto library: {answer['crypto_lib_version']}",
        ]),
        ("Plugins", ["Enabled plugins:", "", *_listed(answer["active_plugins"])]),
        ("Data directory", [f"Node data directory: {answer['data_directory']}"]),
        ("Config files", _listed(answer["config_files"])),
        ("Log file(s)", _listed(answer["log_files"])),
        ("Alarms", _alarms(answer["alarms"])),
        ("Memory", [
            f"Total memory used: {_amount(memory, unit)}",
            f"Calculation strategy: {answer['vm_memory_calculation_strategy']}",
            f"Memory high watermark setting: {_amount(answer['vm_memory_high_watermark_limit'], unit)}",
        ]),
        ("File Descriptors", [
            f"Total: {files['total_used']}, limit: {files['total_limit']}",
            f"Sockets: {files['sockets_used']}, limit: {files['sockets_limit']}",
        ]),
        ("Free Disk Space", [
            f"Low free disk space watermark: {_amount(answer['disk_free_limit'], unit)}",
            f"Free disk space: {_amount(answer['disk_free'], unit)}",
        ]),
        ("Totals", [
            f"Connection count: {totals['connection_count']}",
            f"Queue count: {totals['queue_count']}",
            f"Virtual host count: {totals['virtual_host_count']}",
        ]),
        ("Listeners", map(_interface, answer["listeners"])),
    ]  # fmt: skip
    return "\n".join(_section(title, lines) for title, lines in sections)


def cluster_report(answer: Any, given: Given) -> str:
    """Return the state of the single-node cluster with rabbitmqctl's sections and wording."""
    nodes = answer["running_nodes"]
    versions = [f"{n}: {of['rabbitmq_name']} {of['rabbitmq_version']}" for n, of in answer["versions"].items()]
    kept = [f"Node: {name}, status: {status}" for name, status in answer["maintenance_status"].items()]
    listeners = [f"Node: {name}, {_interface(each)[:1].lower()}{_interface(each)[1:]}"
                 for name, some in answer["listeners"].items() for each in some]  # fmt: skip
    flags = [f"Flag: {flag['name']}, state: {flag['state']}" for flag in answer["feature_flags"]]
    return "\n".join([
        _section("Basics", [f"Cluster name: {answer['cluster_name']}"]),
        _section("Disk Nodes", answer["disk_nodes"]),
        _section("Running Nodes", nodes),
        _section("Versions", versions),
        _section("Maintenance status", kept),
        _section("Alarms", _alarms(answer["alarms"])),
        _section("Network Partitions", answer["partitions"]),
        _section("Listeners", listeners),
        _section("Feature flags", flags),
    ])  # fmt: skip


def environment_report(answer: Any, given: Given) -> str:
    """Return the settings, one on each line."""
    return "\n".join(
        f"{application}.{name} = {json.dumps(value, ensure_ascii=False)}"
        for application, settings in answer.items()
        for name, value in settings.items()
    )


def well(answer: Any, given: Given) -> str:
    """Return the result of node_health_check. Raises Failed if an alarm is on."""
    if answer["alarms"]:
        raise Failed(f"Error:\nresource alarm(s) in effect: {', '.join(_alarms(answer['alarms']))}", DATA)
    return "Health check passed"


def checked(text: str) -> Callable[[Any, Given], str]:
    """Return a function that shows a health check's result: `text` if it is ok, else Failed with the reason.

    The exit code is that of rabbitmq-diagnostics.
    """

    def show(answer: Any, given: Given) -> str:
        if answer["status"] == "ok":
            return text.format_map(given)
        found = [answer[name] for name in ("ports", "protocols", "alarms", "expired") if name in answer]
        more = f": {json.dumps(found[0], ensure_ascii=False)}" if found else ""
        raise Failed(f"Error:\n{answer['reason']}{more}", UNAVAILABLE)

    return show


def alarms_report(answer: Any, given: Given) -> str:
    """Return the active alarms."""
    alarms = _alarms(answer["alarms"])
    if not alarms:
        return f"Node {given['node']} reported no alarms, local or clusterwide"
    return "\n".join([f"Alarms on node {given['node']}:", "", *alarms])


def listeners_report(answer: Any, given: Given) -> str:
    """Return the listeners."""
    return "\n".join(map(_interface, answer["listeners"]))


def connected(answer: Any, given: Given) -> str:
    """Connect to every port that the broker listens on. Raises Failed if one fails."""
    ports = []
    for listener in answer["listeners"]:
        address = WILDCARDS.get(listener["interface"], listener["interface"])
        try:
            with socket.create_connection((address, listener["port"]), given["timeout_s"] or CONNECT_S_MAX):
                ports.append(str(listener["port"]))
        except OSError as error:
            text = f"Error:\nConnection to port {listener['port']} of node {given['node']} failed: {error}"
            raise Failed(text, UNAVAILABLE) from None
    return f"Successfully connected to ports {', '.join(ports)} on node {given['node']}."


def memory_report(answer: Any, given: Given) -> str:
    """Return the memory use by category."""
    parts, unit = answer["memory"], str(given["unit"]).lower()
    total = parts["total"]["rss"] or 1
    kinds = sorted(((name, size) for name, size in parts.items() if isinstance(size, int)), key=lambda each: -each[1])
    return "\n".join(f"{name}: {_amount(size, unit)} ({100 * size / total:.2f}%)" for name, size in kinds)
