"""What may be missing or different in an answer, and why. Paths begin with the noun of the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["LATE", "OMITTED", "VARYING"]

ERLANG = "a fact about Erlang's virtual machine"
MIRRORS = "classic mirrored queues are not supported"

OMITTED: Final[Mapping[str, str]] = {
    "*.garbage_collection": ERLANG,
    "*.reductions": ERLANG,
    "*.reductions_details": ERLANG,
    "*.backing_queue_status*": "RabbitMQ's implementation of a queue",
    "*.effective_policy_definition.ha*": MIRRORS,
    "*.slave_nodes": MIRRORS,
    "*.synchronised_slave_nodes": MIRRORS,
    "*.recoverable_slaves": MIRRORS,
    "*.samples": "there is no statistics database",
    "*.avg": "there is no statistics database",
    "*.avg_rate": "there is no statistics database",
    "overview.message_stats.disk_*": "RabbitMQ's message store",
    "nodes*.io_*": "RabbitMQ's file handles",
    "nodes*.metrics_gc_queue_length": ERLANG,
    "nodes.memory*": ERLANG,
    "*.open_files": "RabbitMQ's implementation of a quorum queue",
    "*idle_since": "told only of what is idle, which depends on the moment",
    "nodes*.mnesia*": "RabbitMQ's database",
    "nodes*.msg_store*": "RabbitMQ's message store",
    "nodes*.queue_index*": "RabbitMQ's message store",
    "nodes*.ra_*": "RabbitMQ's implementation of a quorum queue",
    "nodes*.gc_*": ERLANG,
    "nodes*.context_switches*": ERLANG,
    "nodes*.metrics_gc_queue_length.*": ERLANG,
    "nodes*.net_ticktime": ERLANG,
    "nodes*.applications[]": ERLANG,
    "nodes*.cluster_links": "there is no cluster",
    "*.socket_opts.*": "options of Erlang's sockets",
    "*.cowboy_opts": "options of Erlang's HTTP server",
}
"""Keys that RabbitMQ 3.10.8 has and the broker under test need not have."""

STATISTICS = "comes with RabbitMQ's statistics"

LATE: Final[Mapping[str, str]] = {
    "*.message_stats*": STATISTICS,
    "vhosts*.message*": STATISTICS,
    "vhosts*_oct*": STATISTICS,
    **{
        f"queues*.{key}": STATISTICS
        for key in ("message*", "consumer*", "memory", "state", "policy", "operator_policy",
                    "effective_policy_definition", "exclusive_consumer_tag", "single_active_consumer_tag",
                    "head_message_timestamp")
    },
}
"""Keys that RabbitMQ's answer may have although they are not in its recorded answer, which came too early."""

CLOCK = "a time"
LOAD = "depends on the machine and the moment"

VARYING: Final[Mapping[str, str]] = {
    "*.memory": LOAD,
    "*.reductions*": LOAD,
    "*.garbage_collection.*": LOAD,
    "*.backing_queue_status.*": LOAD,
    "*rate": LOAD,
    "*.idle_since": CLOCK,
    "*.connected_at": CLOCK,
    "*.timestamp": CLOCK,
    "overview.message_stats.*": LOAD,
    "overview.churn_rates.*": LOAD,
    "overview.queue_totals.*": LOAD,
    "overview.object_totals.*": LOAD,
    "overview.listeners*": LOAD,
    "overview.contexts*": LOAD,
    "overview.sample_retention_policies*": "there is no statistics database",
    "health.protocols[]": "RabbitMQ listens for other nodes, too",
    "health.ports[]": "each broker has ports of its own",
    "queues[].state": '"live" while RabbitMQ knows nothing more',
    "queues.items[].state": '"live" while RabbitMQ knows nothing more',
    "exchanges*.user_who_performed_action": "RabbitMQ says who made the virtual host, of what came with it",
    "exchanges.reason": "what is wrong with a property, in other words",
    "users.reason": "what is wrong with a hash, in other words",
    "vhost-limits.reason": "in other words",
    "user-limits.reason": "which of two mistakes is told",
    "definitions.reason*": "ours says where in the file it is",
    "queues.deliveries[]": "RabbitMQ tells them only if its rates are detailed",
    "queues.incoming[]": "RabbitMQ tells them only if its rates are detailed",
    "*.consumer_capacity": LOAD,
    "*.consumer_utilisation": LOAD,
    "cluster-name.name": "each its own",
    "feature-flags*": "each its own",
    "extensions*": "files of RabbitMQ's own web page",
    "parameters[]": "others' things",
    "vhost-limits[]": "others' things",
    "overview.exchange_types*": "what is built in",
    "overview.*version": "each its own",
    "overview.product_name": "each its own",
    "overview.statistics_db_event_queue": LOAD,
    "nodes*": LOAD,
    "global-parameters[]": "others' things",
    "*_cnt": LOAD,
    "*_oct": LOAD,
    "*.send_pend": LOAD,
    "connections[].name": "made of ports",
    "connections.name": "made of ports",
    "channels[].name": "made of ports",
    "channels.name": "made of ports",
    "vhosts[].name": "made of ports",
    "*.peer_port": "each client has a port of its own",
    "*.port": "each broker has a port of its own",
    "*_details.name": "made of ports",
    "*.connection_name": "made of ports",
    "federation-links[].id": "made in another way",
    "federation-links[].local_connection": "the link's own connection has a name that people can read",
    "federation-links[].local_channel.name": "made of the connection's name",
    "federation-links[].uri": "each broker has a port of its own",
    "federation-links[].error": "in other words",
    "users*.password_hash": "salted",
    "definitions.users[].password_hash": "salted",
}
"""Values that differ between brokers or over time; their types are compared."""
