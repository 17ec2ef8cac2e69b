"""Quotas: limits that no ordinary application meets, for everything that clients can make grow.

They keep one broken or hostile client from taking the memory and file descriptors of all others. Codes and texts are
RabbitMQ's where it has such a limit: consumer_max_per_channel of 3.13, and 4.0's of exchanges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.exchange_types.topic import Topic
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.publishers.references import PublisherError
from leveret.broker.staging.queries import StageError
from leveret.broker.staging.query import Producer
from leveret.wire.errors import NOT_ALLOWED, PRECONDITION_FAILED, ProtocolError
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.peer import Peer

# setting -> (default, -1 = unlimited; what it limits)
QUOTAS: Final[dict[str, tuple[int, str]]] = {
    "consumer_max_per_channel": (10_000, "consumers of a channel"),
    "queue_max_per_vhost": (262_144, "queues of a virtual host"),
    "exchange_max_per_vhost": (65_536, "exchanges of a virtual host"),
    "binding_max_per_vhost": (1_048_576, "bindings of a virtual host"),
    "staged_producer_max_per_user": (1_000, "staged producers (queries) of one user in a virtual host"),
    "stage_max_per_user": (50_000, "unreleased stages of one user in a virtual host"),
    "staged_producer_unused_days_max": (400, "days after which an unused staged producer is closed"),
    "publisher_max_per_user": (1_000, "publisher references of one user in a virtual host"),
    "publisher_unused_days_max": (400, "days after which an unused publisher reference is closed"),
    "topic_words_max_per_exchange": (65_536, "words of patterns that a topic exchange compares with one routing key"),
    "connection_max_per_address": (-1, "connections from one IP address"),
    "handshake_max": (1_000, "connections that have not opened a virtual host yet"),
}


def check_consumers(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Raise 530 if the channel has reached its maximum of consumers."""
    most = peer.broker.settings.quota("consumer_max_per_channel")
    if 0 <= most <= len(channel.consumers):
        raise _reached(method, NOT_ALLOWED, f"reached maximum ({most}) of consumers per channel")


def check_queues(peer: Peer, method: Method, name: str) -> None:
    """Raise 406 if the virtual host has reached its own or the broker's maximum of queues."""
    vhost = peer.vhost
    most = vhost.queues_max
    quota = peer.broker.settings.quota("queue_max_per_vhost")
    if most < 0 or 0 <= quota < most:
        most = quota
    if 0 <= most <= len(vhost.queues):
        text = f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({most}) is reached"
        raise _reached(method, PRECONDITION_FAILED, text)


def check_exchanges(peer: Peer, method: Method, name: str) -> None:
    """Raise 406 if the virtual host has reached its maximum of exchanges."""
    most = peer.broker.settings.quota("exchange_max_per_vhost")
    if 0 <= most <= len(peer.vhost.exchanges):
        text = f"cannot declare exchange '{name}' in vhost '{peer.vhost.name}': exchange limit of {most} is reached"
        raise _reached(method, PRECONDITION_FAILED, text)


def check_bindings(peer: Peer, method: Method, binding: Binding) -> None:
    """Raise 406 if the virtual host has reached its maximum of bindings, and this one is new."""
    most = peer.broker.settings.quota("binding_max_per_vhost")
    if 0 <= most <= peer.vhost.binding_count and binding.standing() is None:
        text = f"{_cannot(binding)}: binding limit in vhost '{peer.vhost.name}' ({most}) is reached"
        raise _reached(method, PRECONDITION_FAILED, text)


def check_staged_producers(peer: Peer, query: Producer | None) -> None:
    """Raise StageError if the user has reached the maximum of staged producers or stages; query: None = a new one.

    They are counted only if the whole virtual host has as many.
    """
    queries = peer.vhost.queries
    owner = peer.user if query is None else query.owner
    most = peer.broker.settings.quota("staged_producer_max_per_user")
    if query is None and 0 <= most <= len(queries.by_name) and most <= len(queries.owned(owner)):
        raise StageError(
            f"user '{owner}' has reached the limit of {most} queries in vhost '{peer.vhost.name}': forget finished "
            'ones (op "forget", leveret ctl forget_query), or raise staged_producer_max_per_user'
        )
    most = peer.broker.settings.quota("stage_max_per_user")
    if 0 <= most <= len(queries.by_number) and most <= sum([len(each.stages) for each in queries.owned(owner)]):
        raise StageError(
            f"user '{owner}' has reached the limit of {most} stages in vhost '{peer.vhost.name}': release or abort "
            "some, or raise stage_max_per_user"
        )


def check_publishers(peer: Peer, name: str) -> None:
    """Raise PublisherError if this reference is new and the user has reached the maximum.

    They are counted only if the whole virtual host has as many.
    """
    publishers = peer.vhost.publishers
    most = peer.broker.settings.quota("publisher_max_per_user")
    if name not in publishers.by_name and 0 <= most <= len(publishers.by_name) and most <= len(
        publishers.owned(peer.user)
    ):
        raise PublisherError(
            f"user '{peer.user}' has reached the limit of {most} publisher references in vhost '{peer.vhost.name}': "
            'forget finished ones (op "forget", leveret ctl forget_publisher), or raise publisher_max_per_user'
        )


def check_pattern(peer: Peer, method: Method, binding: Binding) -> None:
    """Raise 406 if, with this binding, one routing key could be compared with too many words of a topic exchange."""
    most = peer.broker.settings.quota("topic_words_max_per_exchange")
    matcher = binding.source.matcher
    if most < 0 or not isinstance(matcher, Topic) or matcher.admits(binding, most):
        return
    if binding.standing() is None:
        text = (
            f"{_cannot(binding)}: one routing key would be compared with more than {most} words of its patterns "
            "(topic_words_max_per_exchange)"
        )
        raise _reached(method, PRECONDITION_FAILED, text)


def _cannot(binding: Binding) -> str:
    kind = "exchange" if isinstance(binding.destination, Exchange) else "queue"
    return f"cannot bind {kind} '{binding.destination.name}' to exchange '{binding.source.name}'"


def _reached(method: Method, code: int, text: str) -> ProtocolError:
    return ProtocolError(code, text, method.spec.class_id, method.spec.method_id)
