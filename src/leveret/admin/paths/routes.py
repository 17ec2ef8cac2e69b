"""All paths of the HTTP API, with their verbs, their rules and the commands behind them.

Paths and verbs are those of RabbitMQ 3.10's management plugin; later ones are marked. HEAD and OPTIONS are added
automatically. /delayed, /streams, /queries, /publishers, /topology, /explain, /federation-downstreams, the messages of
a queue and the pause of a federation link are leveret's own.
"""

from __future__ import annotations

from typing import Final

from leveret.admin import pages, rules, website
from leveret.admin.body import Body, anything, boolean, encoding, integer, payload, table, text
from leveret.admin.paths import delayed, links, looking, special, streams, topology
from leveret.admin.paths.actions import among, ask, check, delete, found, listing, one, post, put, short
from leveret.admin.paths.metrics import METRICS
from leveret.admin.route import PathRoute

QUEUE: Final = Body(durable=boolean, auto_delete=boolean, arguments=table)
EXCHANGE: Final = Body(type=text, durable=boolean, auto_delete=boolean, internal=boolean, arguments=table)
MESSAGE: Final = Body(
    "routing_key", "properties", "payload", "payload_encoding",
    routing_key=text, properties=table, payload=payload, payload_encoding=encoding,
)  # fmt: skip
GET: Final = Body(
    "ackmode", "count", "encoding", ackmode=text, count=integer, encoding=anything, truncate=integer
)  # fmt: skip
POLICY: Final = Body(
    "pattern", "definition", pattern=anything, definition=anything, priority=anything, apply_to=anything
)  # fmt: skip
PERMISSION: Final = Body("configure", "write", "read", configure=text, write=text, read=text)
TOPIC_PERMISSION: Final = Body("exchange", "write", "read", exchange=text, write=text, read=text)
VALUE: Final = Body("value", value=anything)
NOBODY: Final = "vhost_or_user_not_found"

vhost_at = one("get_vhost", name="{vhost}")
user_at = among("list_users", {"name": "{user}"})
queue_at = one("get_queue", vhost="{vhost}", name="{queue}")
stream_at = one("get_stream", vhost="{vhost}", name="{stream}")
query_at = one("get_query", vhost="{vhost}", name="{query}")
exchange_at = one("get_exchange", vhost="{vhost}", name="{exchange}")
connection_at = one("get_connection", name="{name}")
permission_at = among("list_permissions", {"vhost": "{vhost}", "user": "{user}"})
topic_permissions_at = special.topic_permissions_at
BINDING_ENDS: Final = {
    "vhost": "{vhost}", "source": "{source}", "destination": "{destination}", "destination_type": "{destination_type}",
}  # fmt: skip
binding_at = among("list_bindings", {"properties_key": "{properties_key}"}, **BINDING_ENDS)
NAMED: Final = {"vhost": "{vhost}", "name": "{name}"}

_administrator, _management, _vhost = rules.administrator, rules.management, rules.vhost

PAGES: Final = (
    PathRoute("/api", _management, open=pages.api),
    PathRoute("/api/index.html", _management, open=pages.index),
    PathRoute("/cli", _management, open=pages.cli),
    PathRoute("/cli/index.html", _management, open=pages.cli),
    PathRoute("/cli/rabbitmqadmin", _management, open=pages.rabbitmqadmin),
    PathRoute("/api/auth", _management, open=special.auth),
    PathRoute("/api/login", _management, open=special.log_in, is_form=True),
)

NODE: Final = (
    PathRoute("/overview", _management, get=special.overview),
    PathRoute("/whoami", _management, get=special.whoami),
    PathRoute("/extensions", _management, get=special.extensions),
    PathRoute("/cluster-name", _management, may_change=_administrator, find=one("get_cluster_name"), get=found,
              put=put("set_cluster_name", Body("name", name=text))),
    PathRoute("/nodes", rules.monitor, get=short("list_nodes", "name", restricted=False)),
    PathRoute("/nodes/{name}", rules.monitor, find=one("get_node", name="{name}"), get=found),
    PathRoute("/nodes/{name}/memory", rules.monitor, find=one("get_node", name="{name}"), get=special.memory),
    PathRoute("/nodes/{name}/memory/relative", rules.monitor, find=one("get_node", name="{name}"),
              get=special.relative_memory),
    PathRoute("/feature-flags", _administrator, get=short("list_feature_flags", "name", restricted=False)),
    PathRoute("/feature-flags/{name}/enable", _administrator, put=special.enable_feature),
    PathRoute("/auth/attempts/{node}", rules.monitor, may_change=_administrator,
              get=special.auth_attempts, delete=special.reset_auth_attempts),
    PathRoute("/auth/attempts/{node}/source", rules.monitor, may_change=_administrator,
              get=special.auth_attempts, delete=special.reset_auth_attempts),
    PathRoute("/reset", _administrator, delete=special.reset_statistics),
    PathRoute("/reset/{node}", _administrator, delete=special.reset_statistics),
    PathRoute("/rebalance/queues", _administrator, post=special.nothing),
    PathRoute("/definitions", _administrator, get=special.get_definitions, post=special.post_definitions,
              has_auth_in_query=True),
    PathRoute("/definitions/{vhost}", _administrator, get=special.get_definitions, post=special.post_definitions,
              has_auth_in_query=True),
    PathRoute("/all-configuration", _administrator, get=special.get_definitions, post=special.post_definitions,
              has_auth_in_query=True),
)  # fmt: skip

FEDERATION: Final = (
    PathRoute("/federation-links", rules.monitor, get=links.listed()),
    PathRoute("/federation-links/{vhost}", rules.monitor, find=vhost_at, get=links.listed(vhost="{vhost}")),
    PathRoute("/federation-links/state/down", rules.monitor, get=links.listed(only_down=True)),
    PathRoute("/federation-links/{vhost}/state/down", rules.monitor, find=vhost_at,
              get=links.listed(only_down=True, vhost="{vhost}")),
    PathRoute("/federation-links/vhost/{vhost}/{id}/{node}/restart", rules.monitor, may_change=rules.policymaker,
              find=links.find, get=links.listed(vhost="{vhost}"),
              delete=delete("restart_federation_link", vhost="{vhost}", id="{id}")),
    PathRoute("/federation-links/vhost/{vhost}/{id}/{node}/pause", rules.policymaker, find=links.find,
              put=links.pause, delete=delete("resume_federation_link", vhost="{vhost}", id="{id}")),
    PathRoute("/federation-downstreams", _vhost, get=listing("list_downstreams")),
    PathRoute("/federation-downstreams/{vhost}", _vhost, get=listing("list_downstreams")),
)  # fmt: skip

CONNECTIONS: Final = (
    PathRoute("/connections", _management, get=listing("list_connections", owned=True)),
    PathRoute("/connections/{name}", rules.owner, find=connection_at, get=found, delete=special.close_connection),
    PathRoute("/connections/{name}/channels", rules.owner, find=connection_at,
              get=listing("list_channels", paged=False, owned=True, connection="{name}")),
    PathRoute("/connections/username/{user}", rules.owner,
              get=special.connections_of_user, delete=special.close_connections_of_user),
    PathRoute("/vhosts/{vhost}/connections", _vhost, find=vhost_at,
              get=listing("list_connections", paged=False, owned=True)),
    PathRoute("/channels", _management, get=listing("list_channels", owned=True, more=special.of_replies)),
    PathRoute("/channels/{name}", rules.owner, find=one("get_channel", name="{name}"), get=found),
    PathRoute("/vhosts/{vhost}/channels", _vhost, find=vhost_at,
              get=listing("list_channels", paged=False, owned=True, more=special.of_replies)),
    PathRoute("/consumers", _management, get=listing("list_consumers", paged=False, owned=True)),
    PathRoute("/consumers/{vhost}", _management, find=vhost_at, get=listing("list_consumers", paged=False, owned=True)),
)  # fmt: skip

OBJECTS: Final = (
    PathRoute("/exchanges", _vhost, get=listing("list_exchanges")),
    PathRoute("/exchanges/{vhost}", _vhost, get=listing("list_exchanges")),
    PathRoute("/exchanges/{vhost}/{exchange}", _vhost, find=exchange_at, get=found,
              put=put("declare_exchange", EXCHANGE, acting=True, vhost="{vhost}", name="{exchange}"),
              delete=delete("delete_exchange", "if-unused", acting=True, vhost="{vhost}", name="{exchange}")),
    PathRoute("/exchanges/{vhost}/{exchange}/publish", _vhost,
              post=post("publish", MESSAGE, vhost="{vhost}", exchange="{exchange}")),
    PathRoute("/exchanges/{vhost}/{exchange}/bindings/source", _vhost,
              get=listing("list_bindings", paged=False, is_anywhere=True, vhost="{vhost}", source="{exchange}")),
    PathRoute("/exchanges/{vhost}/{exchange}/bindings/destination", _vhost,
              get=listing("list_bindings", paged=False, is_anywhere=True, vhost="{vhost}", destination="{exchange}",
                          destination_type="exchange")),
    PathRoute("/queues", _vhost, get=listing("list_queues")),
    PathRoute("/queues/{vhost}", _vhost, get=listing("list_queues")),
    PathRoute("/queues/{vhost}/{queue}", _vhost, find=queue_at, get=found,
              put=put("declare_queue", QUEUE, acting=True, vhost="{vhost}", name="{queue}"),
              delete=delete("delete_queue", "if-unused", "if-empty", acting=True, vhost="{vhost}", name="{queue}")),
    PathRoute("/queues/{vhost}/{destination}/bindings", _vhost,
              get=listing("list_bindings", paged=False, is_anywhere=True, vhost="{vhost}", destination="{destination}",
                          destination_type="queue")),
    PathRoute("/queues/{vhost}/{queue}/contents", _vhost, find=queue_at,
              delete=delete("purge_queue", acting=True, vhost="{vhost}", name="{queue}")),
    PathRoute("/queues/{vhost}/{queue}/get", _vhost,
              post=post("get_messages", GET, vhost="{vhost}", queue="{queue}")),
    PathRoute("/queues/{vhost}/{queue}/actions", _administrator, find=queue_at, post=special.queue_action),
    PathRoute("/bindings", _vhost, get=listing("list_bindings", paged=False)),
    PathRoute("/bindings/{vhost}", _vhost, get=listing("list_bindings", paged=False)),
    PathRoute("/topology/{vhost}", _vhost, find=vhost_at, get=topology.around),
    PathRoute("/bindings/{vhost}/e/{source}/{dtype}/{destination}", _vhost,
              get=listing("list_bindings", paged=False, is_anywhere=True, vhost="{vhost}", source="{source}",
                          destination="{destination}", destination_type="{destination_type}"), post=special.bind),
    PathRoute("/bindings/{vhost}/e/{source}/{dtype}/{destination}/{properties_key}", _vhost, find=binding_at, get=found,
              delete=delete("unbind", acting=True, **BINDING_ENDS, properties_key="{properties_key}")),
)  # fmt: skip

DELAYED: Final = (
    PathRoute("/delayed", _vhost, get=listing("list_delayed", more=delayed.rows)),
    PathRoute("/delayed/{vhost}", _vhost, get=listing("list_delayed", more=delayed.rows)),
    PathRoute("/delayed/{vhost}/levels", _vhost, get=listing("list_delay_levels")),
    PathRoute("/delayed/{vhost}/histogram", _vhost, find=vhost_at, get=delayed.histogram),
    PathRoute("/delayed/{vhost}/messages", _vhost, find=vhost_at,
              get=delayed.messages, put=delayed.retime, delete=delayed.cancel),
)  # fmt: skip

LOOKING: Final = (
    PathRoute("/explain/{vhost}", _vhost, find=vhost_at, post=looking.route),
    PathRoute("/queues/{vhost}/{queue}/messages", _vhost, find=queue_at, get=looking.messages),
    PathRoute("/queues/{vhost}/{queue}/messages/{place}", _vhost, find=queue_at, get=looking.message),
    PathRoute("/queues/{vhost}/{queue}/messages/{place}/body", _vhost, find=queue_at, get=looking.body, is_file=True),
)  # fmt: skip

STREAMS: Final = (
    PathRoute("/streams", _vhost, get=listing("list_streams")),
    PathRoute("/streams/{vhost}", _vhost, get=listing("list_streams")),
    PathRoute("/streams/{vhost}/{stream}", _vhost, find=stream_at, get=found),
    PathRoute("/streams/{vhost}/{stream}/tracking", _vhost, find=stream_at,
              get=ask("list_stream_tracking", vhost="{vhost}", stream="{stream}")),
    PathRoute("/streams/{vhost}/{stream}/segments", _vhost, find=streams.find, get=streams.segments),
    PathRoute("/streams/{vhost}/{stream}/segments/{file}", _vhost, find=streams.find, get=streams.segment,
              is_file=True),
    PathRoute("/streams/{vhost}/{stream}/leases", _vhost, find=streams.find, get=streams.leases, post=streams.grant),
    PathRoute("/streams/{vhost}/{stream}/leases/{id}", _vhost, find=streams.find,
              put=streams.renew, delete=streams.release),
)  # fmt: skip

STAGES: Final = (
    PathRoute("/queries", _vhost, get=listing("list_queries")),
    PathRoute("/queries/{vhost}", _vhost, get=listing("list_queries")),
    # no `find`: a closed query is not listed any more, but can be forgotten
    PathRoute("/queries/{vhost}/{query}", _administrator, get=ask("get_query", vhost="{vhost}", name="{query}"),
              delete=delete("forget_query", vhost="{vhost}", name="{query}")),
    PathRoute("/queries/{vhost}/{query}/stages", _administrator, find=query_at,
              get=listing("list_stages", vhost="{vhost}", query="{query}")),
)  # fmt: skip

PUBLISHERS: Final = (
    PathRoute("/publishers", _vhost, get=listing("list_publishers")),
    PathRoute("/publishers/{vhost}", _vhost, get=listing("list_publishers")),
    # no `find`: a closed reference is not listed any more, but can be forgotten
    PathRoute("/publishers/{vhost}/{publisher}", _administrator,
              get=ask("get_publisher", vhost="{vhost}", name="{publisher}"),
              delete=delete("forget_publisher", vhost="{vhost}", name="{publisher}")),
)  # fmt: skip

ACCESS: Final = (
    PathRoute("/vhosts", _management, get=listing("list_vhosts", visible=True)),
    PathRoute("/vhosts/{vhost}", _administrator, find=vhost_at, get=found,
              put=special.put_vhost, delete=delete("delete_vhost", name="{vhost}")),
    PathRoute("/vhosts/{vhost}/start/{node}", _administrator, find=vhost_at, post=special.nothing),
    PathRoute("/vhosts/{vhost}/permissions", _administrator, find=vhost_at,
              get=short("list_permissions", "vhost", "user", vhost="{vhost}")),
    PathRoute("/vhosts/{vhost}/topic-permissions", _administrator, find=vhost_at,
              get=short("list_topic_permissions", "vhost", "user", vhost="{vhost}")),
    PathRoute("/users", _administrator, get=short("list_users", restricted=False)),
    PathRoute("/users/bulk-delete", _administrator, post=special.delete_users),
    PathRoute("/users/without-permissions", _administrator, get=special.users_without_permissions),
    PathRoute("/users/{user}", _administrator, find=user_at, get=found, put=special.put_user,
              delete=delete("delete_user", name="{user}")),
    PathRoute("/users/{user}/permissions", _administrator, find=user_at,
              get=short("list_user_permissions", "vhost", "user", user="{user}")),
    PathRoute("/users/{user}/topic-permissions", _administrator, find=user_at,
              get=short("list_user_topic_permissions", "vhost", "user", user="{user}")),
    PathRoute("/permissions", _administrator, get=short("list_permissions", "vhost", "user")),
    PathRoute("/permissions/{vhost}/{user}", _administrator, find=permission_at, get=found,
              put=put("set_permissions", PERMISSION, missing=NOBODY, vhost="{vhost}", user="{user}"),
              delete=delete("clear_permissions", vhost="{vhost}", user="{user}")),
    PathRoute("/topic-permissions", _administrator, get=short("list_topic_permissions", "vhost", "user")),
    PathRoute("/topic-permissions/{vhost}/{user}", _administrator, find=topic_permissions_at, get=found,
              put=put("set_topic_permissions", TOPIC_PERMISSION, missing=NOBODY, vhost="{vhost}", user="{user}"),
              delete=delete("clear_topic_permissions", vhost="{vhost}", user="{user}")),
    PathRoute("/topic-permissions/{vhost}/{user}/{exchange}", _administrator, find=topic_permissions_at, get=found,
              put=put("set_topic_permissions", TOPIC_PERMISSION, missing=NOBODY, vhost="{vhost}", user="{user}"),
              delete=delete("clear_topic_permissions", vhost="{vhost}", user="{user}", exchange="{exchange}")),
    PathRoute("/vhost-limits", rules.visible_vhost, get=special.vhost_limits),
    PathRoute("/vhost-limits/{vhost}", rules.visible_vhost, find=vhost_at, get=special.vhost_limits),
    PathRoute("/vhost-limits/{vhost}/{limit}", _administrator, put=special.put_limit("set_vhost_limit", "vhost"),
              delete=delete("clear_vhost_limit", vhost="{vhost}", name="{limit}")),
    PathRoute("/user-limits", _management, get=special.user_limits),
    PathRoute("/user-limits/{user}", rules.own_user, find=user_at,
              get=short("list_user_limits", "user", restricted=False, user="{user}")),
    PathRoute("/user-limits/{user}/{limit}", _administrator, put=special.put_limit("set_user_limit", "user"),
              delete=delete("clear_user_limits", user="{user}", limit="{limit}")),
)  # fmt: skip


def _policies(path: str, noun: str, plural: str, may_change: rules.Rule, escapes: bool) -> tuple[PathRoute, ...]:
    at = among(f"list_{plural}", NAMED, vhost="{vhost}")
    return (
        PathRoute(path, _vhost, get=short(f"list_{plural}", "priority")),
        PathRoute(f"{path}/{{vhost}}", _vhost, find=vhost_at, get=short(f"list_{plural}", "priority", vhost="{vhost}")),
        PathRoute(f"{path}/{{vhost}}/{{name}}", may_change, find=at, get=found,
                  put=put(f"set_{noun}", POLICY, escapes=escapes, vhost="{vhost}", name="{name}"),
                  delete=delete(f"clear_{noun}", vhost="{vhost}", name="{name}")),
    )  # fmt: skip


PARAMETER: Final = {"vhost": "{vhost}", "component": "{component}", "name": "{name}"}
PARAMETERS: Final = (
    *_policies("/policies", "policy", "policies", rules.policymaker, True),
    *_policies("/operator-policies", "operator_policy", "operator_policies", _administrator, False),
    PathRoute("/parameters", rules.policymaker, get=short("list_parameters")),
    PathRoute("/parameters/{component}", rules.policymaker, get=short("list_parameters", component="{component}")),
    PathRoute("/parameters/{component}/{vhost}", rules.policymaker, find=vhost_at,
              get=short("list_parameters", component="{component}", vhost="{vhost}")),
    PathRoute("/parameters/{component}/{vhost}/{name}", rules.policymaker, get=found,
              find=among("list_parameters", PARAMETER, component="{component}", vhost="{vhost}"),
              put=put("set_parameter", VALUE, escapes=True, vhost="{vhost}", component="{component}", name="{name}"),
              delete=delete("clear_parameter", vhost="{vhost}", component="{component}", name="{name}")),
    PathRoute("/global-parameters", rules.any_policymaker,
              get=short("list_global_parameters", "name", restricted=False)),
    PathRoute("/global-parameters/{name}", rules.any_policymaker, get=found,
              find=among("list_global_parameters", {"name": "{name}"}),
              put=put("set_global_parameter", VALUE, name="{name}"),
              delete=delete("clear_global_parameter", name="{name}")),
)  # fmt: skip


def _check(path: str, name: str, **fields: str) -> PathRoute:
    return PathRoute(f"/health/checks/{path}", _management, get=check("health_check", check=name, **fields))


CHECKS: Final = (
    *(_check(name, name) for name in (
        "alarms", "local-alarms", "virtual-hosts", "node-is-mirror-sync-critical", "node-is-quorum-critical",
        "is-in-service", "ready-to-serve-clients")),
    _check("certificate-expiration/{within}/{unit}", "certificate-expiration", argument="{within}", unit="{unit}"),
    _check("port-listener/{port}", "port-listener", argument="{port}"),
    _check("protocol-listener/{protocol}", "protocol-listener", argument="{protocol}"),
    PathRoute("/healthchecks/node", _management, get=check("health_check", check="local-alarms")),
    PathRoute("/healthchecks/node/{name}", _management, find=one("get_node", name="{name}"),
              get=check("health_check", check="local-alarms")),
    PathRoute("/aliveness-test/{vhost}", _vhost, find=vhost_at, get=check("aliveness_test", vhost="{vhost}")),
)  # fmt: skip

API: Final = (
    *NODE, *FEDERATION, *CONNECTIONS, *OBJECTS, *DELAYED, *LOOKING, *STREAMS, *STAGES, *PUBLISHERS, *ACCESS,
    *PARAMETERS, *CHECKS,
)  # fmt: skip
SITE: Final = tuple(PathRoute(path, _management, open=file.open) for path, file in website.files().items())
Routes = tuple[tuple[str, PathRoute], ...]
ROUTES: Final[Routes] = (
    *((route.path, route) for route in (*SITE, *PAGES, *METRICS)), *((f"/api{route.path}", route) for route in API)
)  # fmt: skip
