"""Export of definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from leveret.broker.access.users import MD5, SHA256, SHA512
from leveret.broker.broker import Broker
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.definitions import (
    GLOBAL_PARAMETER,
    PARAMETER,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER,
    VHOST,
    Definition,
)
from leveret.broker.vhost import VHost
from leveret.control.sliced import Steps
from leveret.control.tables import plain_table, sayable
from leveret.wire.table import decode_table

RESERVED: Final = "amq."
# hash algorithms that RabbitMQ knows
KNOWN_TO_RABBITMQ: Final = (SHA256, SHA512, MD5)
# sections of a file and the kinds of definitions in them
DEFINED: Final = (
    ("users", USER), ("vhosts", VHOST), ("permissions", PERMISSION), ("topic_permissions", TOPIC_PERMISSION),
    ("parameters", PARAMETER), ("global_parameters", GLOBAL_PARAMETER), ("policies", POLICY),
)  # fmt: skip
DEFINED_WITHIN: Final = (("parameters", PARAMETER), ("policies", POLICY))
DECLARED: Final = ("queues", "exchanges", "bindings")


def exported(broker: Broker, vhost: str | None) -> Steps[dict[str, Any]]:
    """Return the definitions file of a broker, or of one existing virtual host, as of now.

    As in RabbitMQ, exclusive queues and objects with reserved names (amq.*), which no import accepts, are left out with
    their bindings. In the file of one virtual host, queues, exchanges and bindings do not name it; parameters and
    policies do.

    The objects are collected at once; their entries are made while they are sent (None is a pause).
    """
    version = broker.settings.version
    table: dict[str, Any] = {"rabbit_version": version, "rabbitmq_version": version}
    if vhost is None:
        table |= {"product_name": broker.settings.product, "product_version": version} | _warnings(broker)
    vhosts = list(broker.vhosts.values()) if vhost is None else [broker.vhosts[vhost]]
    sections: list[tuple[str, Callable[[Any], dict[str, object]], list[Any]]] = []
    for section, kind in DEFINED if vhost is None else DEFINED_WITHIN:
        found = [each for each in broker.definitions.all(kind) if vhost is None or each["vhost"] == vhost]
        sections.append((section, _vhost if kind == VHOST else plain_table, found))
    sections.append(("queues", _queue, [queue for each in vhosts for queue in each.queues.values()]))
    sections.append(("exchanges", _exchange, [(each.name, x) for each in vhosts for x in _exchanges(each)]))
    sections.append(("bindings", _binding, [(each.name, b) for each in vhosts for b in _bindings(each)]))
    yield
    for section, say, found in sections:
        table[section] = _entries(say, found, vhost is None or section not in DECLARED)
    return table


def _entries(
    say: Callable[[Any], dict[str, object]], found: list[Any], says_where: bool
) -> Iterator[dict[str, object] | None]:
    for each in found:
        if isinstance(each, Queue) and (each.owner is not None or each.name.startswith(RESERVED)):
            yield None
            continue
        entry = say(each)
        if not says_where:
            del entry["vhost"]
        yield entry


def _warnings(broker: Broker) -> dict[str, list[str]]:
    users = broker.definitions.all(USER)
    strange = [str(user["name"]) for user in users if user.get("hashing_algorithm", SHA256) not in KNOWN_TO_RABBITMQ]
    if not strange:
        return {}
    names = ", ".join(repr(name) for name in strange)
    return {"warnings": [f"RabbitMQ cannot use the password hashes of {names}: set new passwords there"]}


def _vhost(definition: Definition) -> dict[str, object]:
    """Return the entry with description and tags in both places: RabbitMQ reads them in metadata, and writes both."""
    plain = plain_table(definition)
    return plain | {"metadata": {"description": plain.get("description", ""), "tags": plain.get("tags", [])}}


def _exchanges(vhost: VHost) -> list[Exchange]:
    return [exchange for exchange in vhost.exchanges.values() if not exchange.name.startswith(RESERVED)]


def _bindings(vhost: VHost) -> list[Binding]:
    found: list[Binding] = []
    for exchange in vhost.exchanges.values():
        for binding in exchange.every():
            destination = binding.destination
            if isinstance(destination, Exchange) or (
                destination.owner is None and not destination.name.startswith(RESERVED)
            ):
                found.append(binding)
    return found


def _queue(queue: Queue) -> dict[str, object]:
    return {
        "name": sayable(queue.name),
        "vhost": sayable(queue.vhost.name),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": plain_table(queue.arguments),
    }


def _exchange(place: tuple[str, Exchange]) -> dict[str, object]:
    vhost, exchange = place
    return {
        "name": sayable(exchange.name),
        "vhost": sayable(vhost),
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain_table(exchange.arguments),
    }


def _binding(place: tuple[str, Binding]) -> dict[str, object]:
    vhost, binding = place
    return {
        "source": sayable(binding.source.name),
        "vhost": sayable(vhost),
        "destination": sayable(binding.destination.name),
        "destination_type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing_key": sayable(binding.key),
        "arguments": plain_table(decode_table(binding.arguments, 0)[0]),
    }
