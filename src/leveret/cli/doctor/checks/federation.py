"""Checks of federation: links that are down, behind, missing, in a loop, or lose messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import object_hit
from leveret.cli.doctor.observation import Observation, Row, count
from leveret.cli.terminal import counted

UPSTREAM: Final = "federation-upstream"
SET: Final = "federation-upstream-set"
RUNNING: Final = ("running", "starting")
LAG: Final = 10_000
# the queue that a downstream broker declares here: upstream exchange, and cluster name of the downstream
UPSTREAM_QUEUE: Final = re.compile(r"federation: (?P<exchange>.*) -> (?P<cluster>.*)", re.DOTALL)
ACK_MODES: Final = {
    "no-ack": (Severity.ERROR, "messages in transit are lost when the link breaks"),
    "on-publish": (Severity.WARNING, "messages are lost if this broker fails before they are on its disk"),
}


def links_down(seen: Observation) -> Iterator[Hit]:
    for link in seen.rows("links"):
        status = str(link.get("status", "unknown"))
        if status not in RUNNING:
            since = f" since {link['timestamp']}" if link.get("timestamp") else ""
            reason = " ".join(str(link.get("error") or "no reason given").split())[:300]
            yield _link_hit(link, f"{status}{since}: {reason}")


def links_behind(seen: Observation) -> Iterator[Hit]:
    for link in seen.rows("links"):
        lag = count(link, "lag")
        if lag >= LAG:
            yield _link_hit(link, f"{counted(lag, 'message')} waiting at the upstream")


def no_upstream(seen: Observation) -> Iterator[Hit]:
    parameters = {(row["component"], row["vhost"], row["name"]) for row in seen.rows("parameters")}
    for policy in seen.rows("policies"):
        definition, vhost = policy.get("definition", {}), policy["vhost"]
        upstreams = {name for component, where, name in parameters if component == UPSTREAM and where == vhost}
        if (name := definition.get(UPSTREAM)) is not None and name not in upstreams:
            yield object_hit("policy", policy, f"upstream {name!r} does not exist", UPSTREAM=str(name))
        elif (name := definition.get(SET)) == "all" and not upstreams:
            yield object_hit(
                "policy", policy, "it refers to all upstreams, but none is defined", UPSTREAM="NAME-OF-UPSTREAM"
            )
        elif name is not None and name != "all" and (SET, vhost, name) not in parameters:
            yield object_hit("policy", policy, f"upstream set {name!r} does not exist", UPSTREAM="NAME-OF-UPSTREAM")


def ack_mode(seen: Observation) -> Iterator[Hit]:
    for where, name, value in _upstreams(seen):
        mode = value.get("ack-mode")
        if mode in ACK_MODES:
            severity, harm = ACK_MODES[mode]
            yield object_hit("upstream", {"name": name, "vhost": where}, f"ack-mode {mode!r}: {harm}", severity)


def from_itself(seen: Observation) -> Iterator[Hit]:
    own = str(seen.overview.get("cluster_name", ""))
    for queue in seen.rows("queues"):
        found = UPSTREAM_QUEUE.fullmatch(queue["name"])
        if found and own and found["cluster"] == own:
            yield object_hit(
                "exchange",
                {"name": found["exchange"], "vhost": queue["vhost"]},
                f"a broker with the same cluster name {own!r} has a link to this broker",
            )


def loops(seen: Observation) -> Iterator[Hit]:
    downstream: dict[tuple[str, str], list[str]] = {}
    for queue in seen.rows("queues"):
        found = UPSTREAM_QUEUE.fullmatch(queue["name"])
        if found:
            downstream.setdefault((queue["vhost"], found["exchange"]), []).append(found["cluster"])
    hops = {(where, name): value.get("max-hops") for where, name, value in _upstreams(seen)}
    for link in seen.rows("links"):
        if not link.get("id"):
            continue
        upstream, looped = str(link.get("upstream")), count(link, "looped")
        receivers = downstream.get((link["vhost"], str(link.get("exchange"))), [])
        if looped:
            yield _link_hit(link, f"{counted(looped, 'message')} came back over a cycle and dropped")
        elif receivers and hops.get((link["vhost"], upstream)) is None:
            yield _link_hit(
                link,
                f"the exchange is also an upstream of {', '.join(sorted(receivers))}, and max-hops of upstream "
                f"{upstream!r} is not set",
                Severity.HINT,
            )


def _upstreams(seen: Observation) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield virtual host, name and settings of each upstream, and of the overrides in upstream sets."""
    for row in seen.rows("parameters"):
        value = row.get("value")
        if row["component"] == UPSTREAM and isinstance(value, dict):
            yield row["vhost"], row["name"], value
        elif row["component"] == SET and isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield row["vhost"], f"{row['name']}/{one.get('upstream')}", one


def _link_hit(link: Row, evidence: str, severity: Severity | None = None) -> Hit:
    name = f"link of exchange {link.get('exchange')!r} to upstream {link.get('upstream')!r} in {link.get('vhost')!r}"
    words = {"VHOST": str(link.get("vhost")), "UPSTREAM": str(link.get("upstream")), "ID": str(link.get("id") or "")}
    return Hit(name, evidence, words, severity)


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "federation-link-down", E, "Federation links that are not running",
        "No messages are transferred; they pile up at the upstream until its disk is full or a limit is reached.",
        "Fix the cause in the error (address, password, permissions), then check `ctl federation_status`",
        links_down, ("links",),
    ),
    Check(
        "federation-lag", W, f"Federation links that are more than {counted(LAG, 'message')} behind",
        "The network or this broker is slower than the upstream's publishers; the upstream stores the backlog. "
        "(RabbitMQ does not report it; check its upstream queue.)",
        "Raise prefetch-count of upstream UPSTREAM if network latency is high, or reduce the bindings",
        links_behind, ("links",),
    ),
    Check(
        "federation-no-upstream", E, "Policies that refer to missing federation upstreams",
        "No link exists and no error is reported: the exchange looks federated but is not.",
        "Define it: `ctl set_parameter -p VHOST federation-upstream UPSTREAM "
        "'{\"uri\": \"amqp://user:password@host\"}'`",
        no_upstream, ("policies", "parameters"),
    ),
    Check(
        "federation-ack-mode", W, "Federation upstreams whose ack-mode loses messages",
        "Only on-confirm, the default, removes a message upstream after it is safe downstream.",
        "Set the upstream again without ack-mode: `ctl set_parameter -p VHOST federation-upstream NAME '{\"uri\": "
        "...}'`",
        ack_mode, ("parameters",),
    ),
    Check(
        "federation-same-cluster", E, "A link from a broker with the same cluster name",
        "Federation identifies brokers by cluster name. Either the broker links to itself and drops all messages as "
        "a loop, or two brokers share a name and drop each other's messages.",
        "Delete the link, or rename one of the clusters: `ctl set_cluster_name NEW-NAME`",
        from_itself, ("queues", "overview"),
    ),
    Check(
        "federation-loop", W, "Federated exchanges that form a cycle",
        "Returning messages are dropped only after they have crossed every link. Without max-hops, the default of 1 "
        "stops messages in chains and rings after one link.",
        "Set max-hops of upstream UPSTREAM: 1 for pairs and complete graphs, the number of brokers minus one for a "
        "ring",
        loops, ("links", "queues", "parameters"),
    ),
)  # fmt: skip
