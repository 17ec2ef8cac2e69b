"""Checks of the node: alarms, limits that are near, certificates, and obstacles to an upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import octets
from leveret.cli.doctor.observation import Observation, Row, count
from leveret.cli.doctor.parts import CERTIFICATE_DAYS

MEMORY_NEAR: Final = 0.8
DISK_NEAR: Final = 3
FILES_NEAR: Final = 0.8
DISK_LIMIT_MIN: Final = 1 << 30


def alarms(seen: Observation) -> Iterator[Hit]:
    for node in seen.rows("nodes"):
        if node.get("mem_alarm"):
            yield _hit(
                node,
                f"memory: {octets(count(node, 'mem_used'))} used, publishers are blocked above "
                f"{octets(count(node, 'mem_limit'))}",
            )
        if node.get("disk_free_alarm"):
            yield _hit(
                node,
                f"disk: {octets(count(node, 'disk_free'))} free, publishers are blocked below "
                f"{octets(count(node, 'disk_free_limit'))}",
            )
        if node.get("disk_wait_alarm"):
            yield _hit(node, "the disk has been too slow for more than 5 s: publishers or their confirms wait for it")


def memory_near(seen: Observation) -> Iterator[Hit]:
    for node in seen.rows("nodes"):
        used, most = count(node, "mem_used"), count(node, "mem_limit")
        if most and not node.get("mem_alarm") and used >= MEMORY_NEAR * most:
            yield _hit(node, f"{octets(used)} of {octets(most)} ({used / most:.0%})")


def disk_near(seen: Observation) -> Iterator[Hit]:
    for node in seen.rows("nodes"):
        free, least = count(node, "disk_free"), count(node, "disk_free_limit")
        if least and not node.get("disk_free_alarm") and free < DISK_NEAR * least:
            yield _hit(node, f"{octets(free)} free; publishers are blocked below {octets(least)}")


def small_disk_limit(seen: Observation) -> Iterator[Hit]:
    for node in seen.rows("nodes"):
        least = count(node, "disk_free_limit")
        if 0 < least < DISK_LIMIT_MIN:
            yield _hit(node, f"disk_free_limit is {octets(least)}")


def files_near(seen: Observation) -> Iterator[Hit]:
    for node in seen.rows("nodes"):
        for used, most, what in (
            ("fd_used", "fd_total", "file descriptors"),
            ("sockets_used", "sockets_total", "sockets"),
        ):
            if count(node, most) and count(node, used) >= FILES_NEAR * count(node, most):
                yield _hit(node, f"{count(node, used):,} of {count(node, most):,} {what} are in use")


def not_whole(seen: Observation) -> Iterator[Hit]:
    for node in seen.rows("nodes"):
        if node.get("partitions"):
            yield _hit(node, f"it is partitioned from {', '.join(map(str, node['partitions']))}")
        elif node.get("running") is False:
            yield _hit(node, "it is a cluster member but is not running")


def certificates(seen: Observation) -> Iterator[Hit]:
    said: Any = seen.now.parts.get("certificates")
    if isinstance(said, dict) and said.get("status") == "failed":
        expired = said.get("expired") or [{}]
        for one in expired:
            what = one.get("path") or one.get("interface") or "a listener with TLS"
            more = f", port {one['port']}" if one.get("port") else ""
            yield Hit(f"certificate {str(what)!r}", f"it expires within {CERTIFICATE_DAYS} days, or has expired{more}")


def feature_flags(seen: Observation) -> Iterator[Hit]:
    for flag in seen.rows("feature_flags"):
        if flag.get("state") == "disabled" and flag.get("stability", "stable") in ("stable", "required"):
            yield Hit(
                f"feature flag {flag['name']!r}", str(flag.get("desc") or "disabled"), {"NAME": str(flag["name"])}
            )


def _hit(node: Row, evidence: str) -> Hit:
    return Hit(f"node {node['name']!r}", evidence, {"NODE": str(node["name"])})


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "alarm", E, "An alarm is in effect",
        "The broker blocks all publishers until the alarm clears.",
        "Consume or purge the backlog, free disk space, or raise the limits: `ctl set_vm_memory_high_watermark "
        "0.6`, `ctl set_disk_free_limit 2GB`",
        alarms, ("nodes",),
    ),
    Check(
        "memory-near-limit", W, f"Memory is at more than {MEMORY_NEAR:.0%} of the limit",
        "At the limit, all publishers are blocked.",
        "Find the largest queues: `ctl list_queues name messages memory`; shorten them, or raise the limit: `ctl "
        "set_vm_memory_high_watermark 0.6`",
        memory_near, ("nodes",),
    ),
    Check(
        "disk-near-limit", W, f"Less than {DISK_NEAR} times the disk limit is free",
        "At the limit, all publishers are blocked.",
        "Free disk space, or shorten queues: `ctl list_queues name messages message_bytes`",
        disk_near, ("nodes",),
    ),
    Check(
        "disk-limit-small", H, "The limit for free disk space is very small",
        "A broker that accepts messages until 50 MB are left (the default) can fill the disk before anyone sees the "
        "alarm.",
        "Set a limit suitable for the machine: `disk_free_limit.absolute = 2GB` in rabbitmq.conf; leveret: "
        "--disk-free-limit 2GB",
        small_disk_limit, ("nodes",),
    ),
    Check(
        "files-near-limit", W, "File descriptors or sockets are running out",
        "When none is left, no connections are accepted and queues cannot open their files.",
        "Raise the limit (LimitNOFILE= of the systemd unit), and close unused connections",
        files_near, ("nodes",),
    ),
    Check(
        "cluster-not-whole", E, "The cluster is partitioned or incomplete",
        "Queues on the other side are unreachable, and messages accepted by both sides cannot be merged later.",
        "Start the node, or restart the side whose data you can discard: `rabbitmqctl -n NODE stop_app`, "
        "`rabbitmqctl -n NODE start_app`",
        not_whole, ("nodes",),
    ),
    Check(
        "certificate-expiring", E, f"A TLS certificate expires within {CERTIFICATE_DAYS} days",
        "After that, clients that verify it cannot connect.",
        "Replace the certificate file; leveret reloads it on SIGHUP, RabbitMQ reads it for new connections",
        certificates, ("certificates",),
    ),
    Check(
        "feature-flags-disabled", H, "Disabled feature flags",
        "A new RabbitMQ version requires the previous version's flags: the node would not start after the upgrade.",
        "`ctl enable_feature_flag all`",
        feature_flags, ("feature_flags",),
    ),
)  # fmt: skip
