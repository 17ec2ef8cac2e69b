"""Whether a layout stands on a broker as it should. Nothing is created, changed or consumed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from leveret.client import Channel, ChannelClosed, Connection
from leveret.delay import topology
from leveret.delay.layout import Layout
from leveret.delay.tools.creation import described
from leveret.delay.tools.finding import Finding, State
from leveret.delay.tools.management import Management
from leveret.delay.tools.probe import disconnected
from leveret.delay.topology import ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration
from leveret.wire.errors import NOT_FOUND

__all__ = ["Finding", "Knowledge", "State", "examined", "verify"]

CREATES: Final = "`leveret delay create` declares it"
# of a policy for a level queue -> what comes of it
POLICY_HARMS: Final = {
    "message-ttl": "messages may come early",
    "expires": "the queue may be deleted with all that waits in it",
    "max-length": "messages beyond it are dropped or refused",
    "max-length-bytes": "messages beyond it are dropped or refused",
    "dead-letter-routing-key": "messages are routed to the wrong place",
}


class Knowledge(Protocol):
    """What is known of a virtual host beyond AMQP: Management asks the HTTP API for it."""

    def bindings(self) -> set[tuple[str, str, str, str]]:
        """(source, "queue" or "exchange", destination, routing key) of every binding."""

    def policies(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Queue -> what policies say of it, for the queues whose names begin so and that have a policy."""

    def feature_flags(self) -> set[str]:
        """The feature flags that are enabled."""


async def verify(connection: Connection, layout: Layout, management: Management | None = None) -> list[Finding]:
    """What was found, in the order in which it was looked at. management: the HTTP API, for what AMQP does not tell.

    An exchange or queue is first asked for passively, and declared only where it is there: then the broker compares,
    and answers 406 where something differs. ``ApiError`` where the HTTP API does not answer.
    """
    findings = [*_broker(connection, layout)]
    standing = True
    for one in layout.topology():
        if isinstance(one, ExchangeDeclaration | QueueDeclaration):
            finding = await _compared(connection, one)
            standing = standing and not finding.state.is_failure
            findings.append(finding)
    if not standing:
        findings.append(Finding("bindings", State.UNKNOWN, "not checked until the problems above are fixed"))
        return findings
    if management is None:
        return findings + await _probed(connection, layout)
    return findings + await asyncio.to_thread(_asked, layout, management)


def examined(
    layout: Layout, exchanges: Collection[str], queues: Mapping[str, dict[str, Any]], knowledge: Knowledge
) -> list[Finding]:
    """The same without a connection, from lists of what stands in the virtual host.

    exchanges: their names; queues: by name, each with its `arguments`, as the HTTP API shows them.
    """
    findings = []
    for one in layout.topology():
        if isinstance(one, ExchangeDeclaration):
            if one.name not in exchanges:
                findings.append(Finding(described(one), State.MISSING, CREATES))
        elif isinstance(one, QueueDeclaration):
            findings += _listed(one, queues.get(one.name))
    return findings or _asked(layout, knowledge)


def _listed(one: QueueDeclaration, queue: dict[str, Any] | None) -> list[Finding]:
    """What is wrong with a level queue of a list; its type stands in its arguments only if it was asked for."""
    if queue is None:
        return [Finding(described(one), State.MISSING, CREATES)]
    given = dict(queue.get("arguments") or {})
    return [
        Finding(described(one), State.DIFFERENT, f"{name} is {given.get(name)!r}, not {value!r}")
        for name, value in (one.arguments or {}).items()
        if given.get(name) != value and not (name == "x-queue-type" and queue.get("type") == value)
    ]


def _broker(connection: Connection, layout: Layout) -> list[Finding]:
    """Its product and version, and what this layout asks of it."""
    said = connection.server_properties
    own = said.get("leveret_version")  # to clients leveret calls itself RabbitMQ, unless it was told otherwise
    if own:
        return [Finding("broker", State.OK, f"leveret {own!s}")]
    product, version = str(said.get("product", "unknown")), str(said.get("version", "unknown"))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    finding = Finding("broker", State.OK, f"{product} {version}")
    if product != "RabbitMQ" or numbers is None:
        return [finding]
    major, minor = int(numbers[1]), int(numbers[2])
    found = [finding]
    if layout.queue_type == "quorum" and (major, minor) < (3, 10):
        detail = f"RabbitMQ {version} drops what it can't deliver: dead-lettering at least once came with 3.10"
        found.append(Finding("quorum queues", State.DIFFERENT, detail))
    if major >= 4:
        detail = "RabbitMQ 4 drops a message of an endpoint's quorum queue after 20 deliveries: set a delivery-limit"
        found.append(Finding("delivery limit", State.WARNING, detail))
    if layout.queue_type != "quorum":
        detail = "RabbitMQ drops a message that is due and whose destination is gone; quorum queues keep it"
        found.append(Finding("queue type", State.WARNING, detail))
    return found


async def _compared(connection: Connection, one: ExchangeDeclaration | QueueDeclaration) -> Finding:
    async with await connection.channel() as channel:
        return await _compared_on(channel, one)


async def _compared_on(channel: Channel, one: ExchangeDeclaration | QueueDeclaration) -> Finding:
    what = described(one)
    waiting = ""
    try:
        if isinstance(one, QueueDeclaration):
            count = (await channel.declare_queue(one.name, passive=True)).message_count
            waiting = f"{count:,} waiting" if count else ""
        else:
            await channel.declare_exchange(one.name, passive=True)
    except ChannelClosed as error:
        if error.code == NOT_FOUND:
            return Finding(what, State.MISSING, CREATES)
        return Finding(what, State.UNKNOWN, error.text)
    try:
        await topology.declare(channel, [one])
    except ChannelClosed as error:
        return Finding(what, State.DIFFERENT if error.code == 406 else State.UNKNOWN, error.text)
    return Finding(what, State.OK, waiting)


async def _probed(connection: Connection, layout: Layout) -> list[Finding]:
    """The bindings that a message without a delay passes; those into the queues would keep it."""
    unknown = Finding(
        "bindings of level queues", State.UNKNOWN, "AMQP can't list them: name the broker's HTTP API with --api"
    )
    broken = await disconnected(connection, layout)
    if not broken:
        return [Finding("bindings between levels", State.OK, "a test message passed all levels"), unknown]
    level = broken[0]
    where = layout.level_name(level) if level >= 0 else layout.delivery_exchange
    detail = f"exchange {where!r} did not forward a test message: `leveret delay create` adds what is missing"
    return [Finding("bindings between levels", State.MISSING, detail), unknown]


def _asked(layout: Layout, management: Knowledge) -> list[Finding]:
    """Every binding, what is bound besides, and the policies of the level queues."""
    findings = []
    standing = management.bindings()
    expected = set()
    for one in layout.topology():
        match one:
            case QueueBinding(queue, exchange, key):
                expected.add((exchange, "queue", queue, key))
            case ExchangeBinding(destination, source, key):
                expected.add((source, "exchange", destination, key))
            case _:
                continue
    for binding in sorted(expected):
        if binding not in standing:
            findings.append(Finding(_named(binding), State.MISSING, "`leveret delay create` adds it"))
    levels = {layout.level_name(level) for level in range(layout.levels)}
    for binding in sorted(standing - expected):
        if binding[0] in levels:
            findings.append(
                Finding(_named(binding), State.WARNING, "not part of this layout: it receives copies of messages")
            )
    if not any(finding.state is State.MISSING for finding in findings):
        findings.insert(0, Finding("bindings", State.OK, f"{len(expected)} between levels and queues"))
    bound = sorted({name for source, _, name, _ in standing if source == layout.delivery_exchange})
    findings.append(Finding("destinations", State.OK, ", ".join(bound) or "none bound yet"))
    for queue, policy in sorted(management.policies(layout.prefix).items()):
        if queue in levels:
            findings += _harms(queue, policy)
    missing = {"quorum_queue", "stream_queue"} - management.feature_flags()
    if layout.queue_type == "quorum" and missing:
        detail = f"{', '.join(sorted(missing))}: NServiceBus requires it (rabbitmqctl enable_feature_flag)"
        findings.append(Finding("feature flags", State.WARNING, detail))
    return findings


def _harms(queue: str, policy: dict[str, Any]) -> list[Finding]:
    return [
        Finding(f"policy of queue {queue!r}", State.DIFFERENT, f"{key} {policy[key]!r}: {harm}")
        for key, harm in POLICY_HARMS.items()
        if key in policy
    ]


def _named(binding: tuple[str, str, str, str]) -> str:
    source, kind, destination, key = binding
    return f"the binding of {kind} {destination!r} to {source!r} with {key!r}"
