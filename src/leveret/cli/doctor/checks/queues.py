"""Checks of queues: limits, and features that are costly or deprecated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from leveret.broker.exchange_types.exchange_arguments import EXCHANGE_ARGUMENT_NAMES
from leveret.broker.methods.arguments import unknown
from leveret.broker.queues.queue_arguments import NAMES
from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import is_brokers_own, level_of, object_hit
from leveret.cli.doctor.observation import Key, Observation, Row, count, setting
from leveret.cli.terminal import counted

LIMITS: Final = ("max-length", "max-length-bytes", "message-ttl", "max-age")
GROWTH_PER_S: Final = 10.0
NEAR: Final = 0.9
# further arguments of newer RabbitMQ versions and of plugins
OF_RABBITMQ: Final = ("x-quorum-target-group-size",)
PRIORITIES_MANY: Final = 10
# argument or policy key -> why it has no effect
RETIRED: Final = {
    "queue-mode": "lazy and default are the same since RabbitMQ 3.12",
    "queue-master-locator": "replaced by x-queue-leader-locator; removed in RabbitMQ 4",
    "max-in-memory-length": "no effect since RabbitMQ 3.10",
    "max-in-memory-bytes": "no effect since RabbitMQ 3.10",
    "queue-version": "RabbitMQ 4 supports only version 2",
}


def growing(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        if queue.get("exclusive") or any(setting(queue, limit) is not None for limit in LIMITS):
            continue
        rate = seen.rate("queues", queue, "messages")
        if rate >= GROWTH_PER_S:
            yield object_hit(
                "queue",
                queue,
                f"it has {counted(count(queue, 'messages'), 'message')}, {rate:,.0f} more per second, and neither a "
                "length limit nor a TTL",
                weight=rate,
            )


def near_limit(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        if queue.get("type") == "stream":
            continue  # a stream is usually full, by design
        for limit, field in (("max-length", "messages_ready"), ("max-length-bytes", "message_bytes")):
            most, there = setting(queue, limit), count(queue, field)
            if isinstance(most, int) and most >= 10 and there >= NEAR * most:
                then = str(setting(queue, "overflow") or "drop-head")
                yield object_hit(
                    "queue", queue, f"{there:,} of {limit} {most:,} ({there / most:.0%}); overflow: {then}"
                )


def transient(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        if not queue.get("durable") and not queue.get("exclusive") and not is_brokers_own(queue["name"]):
            yield object_hit("queue", queue, "it is neither durable nor exclusive")


def persistent_lost(seen: Observation) -> Iterator[Hit]:
    """Transient queues do not count persistent messages; durable queues bound to the same exchange reveal them."""
    sources: dict[Key, list[Row]] = defaultdict(list)
    for binding in seen.rows("bindings"):
        queue = seen.queues.get((binding["vhost"], binding["destination"]))
        if binding["source"] and binding["destination_type"] == "queue" and queue is not None:
            sources[binding["vhost"], binding["source"]].append(queue)
    for (_, source), queues in sources.items():
        durable = max(queues, key=lambda row: count(row, "message_bytes_persistent"))
        size = count(durable, "message_bytes_persistent")
        for queue in queues:
            if size and not queue.get("durable") and not queue.get("exclusive"):
                yield object_hit(
                    "queue",
                    queue,
                    f"exchange {source!r} receives persistent messages ({size:,} bytes of them wait in "
                    f"{durable['name']!r}), but this queue does not survive a restart",
                )


def priorities(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        most = setting(queue, "max-priority")
        if isinstance(most, int) and most > PRIORITIES_MANY:
            yield object_hit("queue", queue, f"x-max-priority is {most}")


def retired(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        arguments = queue.get("arguments") or {}
        for key, became in RETIRED.items():
            name = f"x-{key}"
            if name in arguments and level_of(queue["name"]) is None:
                yield object_hit("queue", queue, f"{name} = {arguments[name]!r}: {became}")
    for policy in seen.rows("policies"):
        for key, became in RETIRED.items():
            if key in policy.get("definition", {}):
                yield object_hit("policy", policy, f"{key} = {policy['definition'][key]!r}: {became}")


def unknown_arguments(seen: Observation) -> Iterator[Hit]:
    """What was declared and means nothing to this broker; RabbitMQ knows more than leveret does."""
    for kind, part, known in (("queue", "queues", NAMES), ("exchange", "exchanges", EXCHANGE_ARGUMENT_NAMES)):
        names = known if seen.is_leveret else (*known, *OF_RABBITMQ)
        for row in seen.rows(part):
            for name in unknown(row.get("arguments") or {}, names):
                if not is_brokers_own(row["name"]):
                    near = get_close_matches(name, names, 1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    yield object_hit(kind, row, f"it was declared with {name} = {row['arguments'][name]!r}{hint}")


def mirrored(seen: Observation) -> Iterator[Hit]:
    for policy in seen.rows("policies"):
        mode = policy.get("definition", {}).get("ha-mode")
        if mode is not None:
            effect = (
                "no effect on a single node" if seen.is_leveret else "RabbitMQ 4 has no mirrored queues"
            )
            yield object_hit(
                "policy", policy, f"ha-mode {mode!r}: {effect}", Severity.HINT if seen.is_leveret else None
            )


def shared_prefetch(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("channels"):
        if limit := count(row, "global_prefetch_count"):
            yield Hit(
                f"channel {row['name']!r}", f"one prefetch of {limit:,} for all its consumers (basic.qos global=true)"
            )


def deprecated(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("deprecated"):
        yield Hit(f"feature {row.get('name')!r}", _deprecated(row), {"NAME": str(row.get("name"))})


def _deprecated(row: Row) -> str:
    phase = str(row.get("deprecation_phase", "deprecated")).replace("_", " ")
    return f"{phase}: {row.get('desc') or 'in use on this broker'}"


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "unbounded-growth", W, "Queues without a limit grow",
        "Publishers are faster than consumers. Nothing limits the queue until the disk alarm blocks all publishers.",
        "Give it a limit: `ctl set_policy -p VHOST --apply-to queues bounded '^NAME$' "
        "'{\"max-length\": 1000000, \"overflow\": \"reject-publish\"}'`, and consume faster",
        growing, ("queues", "statistics"), True,
    ),
    Check(
        "queue-near-limit", W, "Queues that are nearly full",
        "Beyond the limit, new messages displace the oldest ones (drop-head) or are rejected (reject-publish).",
        "Consume faster, or raise the limit: `ctl set_policy -p VHOST --apply-to queues NAME '^NAME$' "
        "'{\"max-length\": 1000000}'` (a policy can only lower a limit set as a declaration argument)",
        near_limit, ("queues", "statistics"),
    ),
    Check(
        "transient-queue", W, "Queues that are neither durable nor exclusive",
        "They and their bindings disappear at a restart, and applications then publish to no queue. RabbitMQ "
        "deprecates them (transient_nonexcl_queues).",
        "Declare them durable, with x-expires for automatic deletion, or exclusive",
        transient, ("queues",),
    ),
    Check(
        "persistent-in-transient", W, "Persistent messages in queues that are not durable",
        "Publishers pay the cost of persistence, but the messages do not survive a restart.",
        "Declare the queue durable: delete it, then `channel.declare_queue('NAME', durable=True)`",
        persistent_lost, ("queues", "bindings", "statistics"),
    ),
    Check(
        "many-priorities", H, f"Priority queues with more than {PRIORITIES_MANY} priorities",
        "RabbitMQ keeps one queue per priority: memory, processor time and file handles grow with their number.",
        "Declare it with x-max-priority 2 to 5; few applications need more",
        priorities, ("queues",),
    ),
    Check(
        "retired-argument", H, "Obsolete arguments and policy keys",
        "They have no effect, and newer versions may reject them.",
        "Remove them from declarations and policies",
        retired, ("queues", "policies"),
    ),
    Check(
        "unknown-argument", W, "Unknown queue and exchange arguments",
        "The broker stores them but ignores them: a misspelt limit has no effect and causes no error.",
        "Correct the declaration; arguments cannot be changed, so delete the queue first: `ctl delete_queue -p "
        "VHOST NAME`",
        unknown_arguments, ("queues", "exchanges"),
    ),
    Check(
        "mirrored-queues", W, "Policies for classic mirrored queues",
        "RabbitMQ 4.0 removed mirroring: after the upgrade such a queue has only one replica.",
        "Move to quorum queues (declare with x-queue-type=quorum), then `ctl clear_policy -p VHOST NAME`",
        mirrored, ("policies",),
    ),
    Check(
        "global-prefetch", H, "One prefetch limit shared by all consumers of a channel",
        "basic.qos with global=true is deprecated (global_qos), and quorum queues do not support it.",
        "Set a prefetch for each consumer: basic.qos with global=false, `channel.qos(prefetch_count=100)`",
        shared_prefetch, ("channels", "statistics"),
    ),
    Check(
        "deprecated-feature", W, "Deprecated features are in use",
        "A future RabbitMQ version will reject them, and the node or the application will not start.",
        "See RabbitMQ's page on deprecated features for the replacement of NAME; test without it: "
        "`deprecated_features.permit.NAME = false` in rabbitmq.conf",
        deprecated, ("deprecated",),
    ),
)  # fmt: skip
