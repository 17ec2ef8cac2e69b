"""Verifies that a layout is declared correctly on a broker. Creates, changes and consumes nothing."""

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
# keys of a policy that must not apply to a level queue -> their effect
POLICY_HARMS: Final = {
    "message-ttl": "messages may come early",
    "expires": "the queue may be deleted with all that waits in it",
    "max-length": "messages beyond it are dropped or refused",
    "max-length-bytes": "messages beyond it are dropped or refused",
    "dead-letter-routing-key": "messages are routed to the wrong place",
}


class Knowledge(Protocol):
    """Facts about a virtual host that AMQP cannot list; Management reads them from the HTTP API."""

    def bindings(self) -> set[tuple[str, str, str, str]]:
        """Return (source, "queue" or "exchange", destination, routing key) of every binding."""

    def policies(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Return the effective policy definitions, by queue, of the queues with this prefix that have a policy."""

    def feature_flags(self) -> set[str]:
        """Return the enabled feature flags."""


async def verify(connection: Connection, layout: Layout, management: Management | None = None) -> list[Finding]:
    """Check a layout and return the findings in the order of the checks.

    Each exchange and queue is declared passively first, and then actively only if it exists: then the broker compares
    the arguments, and answers 406 if they differ.

    Args:
        connection: Connection to the broker.
        layout: The layout to check.
        management: The HTTP API, for checks that AMQP does not allow; None = skip these.

    Raises:
        ApiError: The HTTP API does not answer.
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
    """Check a layout without a connection, from lists of the virtual host's objects.

    Args:
        layout: The layout to check.
        exchanges: Names of the exchanges.
        queues: The queues by name, each with its `arguments`, as the HTTP API shows them.
        knowledge: Bindings, policies and feature flags.
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
    """Check a listed level queue. Its type is in its arguments only if it was declared with a type."""
    if queue is None:
        return [Finding(described(one), State.MISSING, CREATES)]
    given = dict(queue.get("arguments") or {})
    return [
        Finding(described(one), State.DIFFERENT, f"{name} is {given.get(name)!r}, not {value!r}")
        for name, value in (one.arguments or {}).items()
        if given.get(name) != value and not (name == "x-queue-type" and queue.get("type") == value)
    ]


def _broker(connection: Connection, layout: Layout) -> list[Finding]:
    """Check the broker's product and version, and whether it suits the layout."""
    said = connection.server_properties
    own = said.get("leveret_version")  # by default leveret's product is "RabbitMQ" in the handshake
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
    """Check the bindings that a message with delay 0 passes; a probe through the level queues would stay in them."""
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
    """Check all bindings, extra bindings, policies of the level queues, and feature flags."""
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
