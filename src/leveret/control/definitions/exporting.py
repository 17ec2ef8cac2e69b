"""Definitions out of a broker."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.binding import Binding
from leveret.broker.broker import Broker
from leveret.broker.definitions import (
    GLOBAL_PARAMETER,
    PARAMETER,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER,
    VHOST,
    Definition,
)
from leveret.broker.exchange import Exchange
from leveret.broker.queue import Queue
from leveret.broker.users import MD5, SHA256, SHA512
from leveret.broker.vhost import VHost
from leveret.control.tables import plain_table, sayable
from leveret.wire.table import decode_table

RESERVED: Final = "amq."
# what RabbitMQ can check a password with
KNOWN_TO_RABBITMQ: Final = (SHA256, SHA512, MD5)


def exported(broker: Broker, vhost: str | None) -> dict[str, Any]:
    """What a definitions file says of a broker, or (the virtual host is there) of one virtual host.

    As RabbitMQ's: without queues that are exclusive, and without what has a reserved name (amq.*), which no import
    takes, and their bindings.
    """
    version = broker.settings.version
    head: dict[str, Any] = {"rabbit_version": version, "rabbitmq_version": version}
    if vhost is not None:
        return head | _within(broker, vhost)
    users = broker.definitions.all(USER)
    head |= {"product_name": broker.settings.product, "product_version": version}
    strange = [str(user["name"]) for user in users if user.get("hashing_algorithm", SHA256) not in KNOWN_TO_RABBITMQ]
    if strange:
        names = ", ".join(repr(name) for name in strange)
        head["warnings"] = [f"RabbitMQ can't use the password hashes of {names}: they need a new password there"]
    return head | {
        "users": _plain(users),
        "vhosts": [_vhost(each) for each in broker.definitions.all(VHOST)],
        "permissions": _plain(broker.definitions.all(PERMISSION)),
        "topic_permissions": _plain(broker.definitions.all(TOPIC_PERMISSION)),
        "parameters": _plain(broker.definitions.all(PARAMETER)),
        "global_parameters": _plain(broker.definitions.all(GLOBAL_PARAMETER)),
        "policies": _plain(broker.definitions.all(POLICY)),
        "queues": [_queue(queue) for each in broker.vhosts.values() for queue in _queues(each)],
        "exchanges": [_exchange(each, x) for each in broker.vhosts.values() for x in _exchanges(each)],
        "bindings": [_binding(each, b) for each in broker.vhosts.values() for b in _bindings(each)],
    }


def _within(broker: Broker, name: str) -> dict[str, Any]:
    """What belongs to one virtual host. What is declared does not say in which, parameters and policies do."""
    vhost = broker.vhosts[name]
    parameters, policies = (
        [each for each in _plain(broker.definitions.all(kind)) if each["vhost"] == name] for kind in (PARAMETER, POLICY)
    )
    declared: dict[str, list[dict[str, object]]] = {
        "queues": [_queue(queue) for queue in _queues(vhost)],
        "exchanges": [_exchange(vhost, exchange) for exchange in _exchanges(vhost)],
        "bindings": [_binding(vhost, binding) for binding in _bindings(vhost)],
    }
    for entries in declared.values():
        for entry in entries:
            del entry["vhost"]
    return {"parameters": parameters, "policies": policies} | declared


def _plain(definitions: list[Definition]) -> list[dict[str, object]]:
    return [plain_table(definition) for definition in definitions]


def _vhost(definition: Definition) -> dict[str, object]:
    """RabbitMQ reads description and tags in metadata, and writes them at both places."""
    plain = plain_table(definition)
    return plain | {"metadata": {"description": plain.get("description", ""), "tags": plain.get("tags", [])}}


def _queues(vhost: VHost) -> list[Queue]:
    return [queue for queue in vhost.queues.values() if queue.owner is None and not queue.name.startswith(RESERVED)]


def _exchanges(vhost: VHost) -> list[Exchange]:
    return [exchange for exchange in vhost.exchanges.values() if not exchange.name.startswith(RESERVED)]


def _bindings(vhost: VHost) -> list[Binding]:
    found: list[Binding] = []
    for exchange in vhost.exchanges.values():
        for binding in exchange.outgoing.values():
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


def _exchange(vhost: VHost, exchange: Exchange) -> dict[str, object]:
    return {
        "name": sayable(exchange.name),
        "vhost": sayable(vhost.name),
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain_table(exchange.arguments),
    }


def _binding(vhost: VHost, binding: Binding) -> dict[str, object]:
    return {
        "source": sayable(binding.source.name),
        "vhost": sayable(vhost.name),
        "destination": sayable(binding.destination.name),
        "destination_type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing_key": sayable(binding.key),
        "arguments": plain_table(decode_table(binding.arguments, 0)[0]),
    }
