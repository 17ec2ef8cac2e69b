"""Which tags may change what over HTTP, and see what: every path of the table of routes, with every tag."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest

from leveret.admin.api import Api
from leveret.admin.cors import Cors
from leveret.admin.paths.routes import API, METRICS
from leveret.control.calls.line import SOMEBODY, Caller, call_line, result_of
from leveret.control.command import COMMANDS
from leveret.wire import grammar

from .admin import MINE, USERS, Browser
from .asking import whole
from .test_queries import Rig

EVERYBODY: Final = "root watch rules plain"
# verb and path -> users that may; where permissions decide, the broker checks them (the command has the user)
CHANGES: Final = {
    "PUT /cluster-name": "root",
    "PUT /feature-flags/{name}/enable": "root",
    "DELETE /auth/attempts/{node}": "root",
    "DELETE /auth/attempts/{node}/source": "root",
    "DELETE /reset": "root",
    "DELETE /reset/{node}": "root",
    "POST /rebalance/queues": "root",
    "POST /definitions": "root",
    "POST /definitions/{vhost}": "root",
    "POST /all-configuration": "root",
    "DELETE /federation-links/vhost/{vhost}/{id}/{node}/restart": "root rules",
    "PUT /federation-links/vhost/{vhost}/{id}/{node}/pause": "root rules",
    "DELETE /federation-links/vhost/{vhost}/{id}/{node}/pause": "root rules",
    "DELETE /connections/{name}": "root",  # and the connection's own user
    "DELETE /connections/username/{user}": "root",
    "PUT /exchanges/{vhost}/{exchange}": EVERYBODY,
    "DELETE /exchanges/{vhost}/{exchange}": EVERYBODY,
    "POST /exchanges/{vhost}/{exchange}/publish": EVERYBODY,
    "PUT /queues/{vhost}/{queue}": EVERYBODY,
    "DELETE /queues/{vhost}/{queue}": EVERYBODY,
    "DELETE /queues/{vhost}/{queue}/contents": EVERYBODY,
    "POST /queues/{vhost}/{queue}/get": EVERYBODY,
    "POST /queues/{vhost}/{queue}/actions": "root",
    "POST /bindings/{vhost}/e/{source}/{dtype}/{destination}": EVERYBODY,
    "DELETE /bindings/{vhost}/e/{source}/{dtype}/{destination}/{properties_key}": EVERYBODY,
    "PUT /delayed/{vhost}/messages": EVERYBODY,
    "DELETE /delayed/{vhost}/messages": EVERYBODY,
    "POST /explain/{vhost}": EVERYBODY,  # it changes nothing
    "POST /streams/{vhost}/{stream}/leases": EVERYBODY,
    "PUT /streams/{vhost}/{stream}/leases/{id}": EVERYBODY,
    "DELETE /streams/{vhost}/{stream}/leases/{id}": EVERYBODY,
    "DELETE /queries/{vhost}/{query}": "root",
    "DELETE /publishers/{vhost}/{publisher}": "root",
    "PUT /vhosts/{vhost}": "root",
    "DELETE /vhosts/{vhost}": "root",
    "POST /vhosts/{vhost}/start/{node}": "root",
    "POST /users/bulk-delete": "root",
    "PUT /users/{user}": "root",
    "DELETE /users/{user}": "root",
    "PUT /permissions/{vhost}/{user}": "root",
    "DELETE /permissions/{vhost}/{user}": "root",
    "PUT /topic-permissions/{vhost}/{user}": "root",
    "DELETE /topic-permissions/{vhost}/{user}": "root",
    "PUT /topic-permissions/{vhost}/{user}/{exchange}": "root",
    "DELETE /topic-permissions/{vhost}/{user}/{exchange}": "root",
    "PUT /vhost-limits/{vhost}/{limit}": "root",
    "DELETE /vhost-limits/{vhost}/{limit}": "root",
    "PUT /user-limits/{user}/{limit}": "root",
    "DELETE /user-limits/{user}/{limit}": "root",
    "PUT /policies/{vhost}/{name}": "root rules",
    "DELETE /policies/{vhost}/{name}": "root rules",
    "PUT /operator-policies/{vhost}/{name}": "root",
    "DELETE /operator-policies/{vhost}/{name}": "root",
    "PUT /parameters/{component}/{vhost}/{name}": "root rules",
    "DELETE /parameters/{component}/{vhost}/{name}": "root rules",
    "PUT /global-parameters/{name}": "root rules",
    "DELETE /global-parameters/{name}": "root rules",
}
# a body with the fields that any of them needs
BODY: Final = {
    "name": "n", "type": "direct", "tags": "", "value": 1, "configure": "", "write": "", "read": "", "exchange": "x",
    "pattern": "", "definition": {}, "action": "sync", "properties": {}, "routing_key": "", "payload": "",
    "payload_encoding": "string", "ackmode": "ack_requeue_true", "count": 1, "encoding": "auto", "duration_ms": 1,
    "users": [], "in_ms": 1,
}  # fmt: skip
ROUTES: Final = {route.path: route for route in API}


def test_the_table_has_all_paths_that_change_something() -> None:
    verbs = ("PUT", "POST", "DELETE")
    assert set(CHANGES) == {f"{verb} {route.path}" for route in API for verb in verbs if verb in route.methods}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("vhost", [MINE, "theirs"])
async def test_who_may_change_what(change: str, vhost: str) -> None:
    verb, path = change.split(" ")
    values = {"vhost": vhost, "dtype": "q", "user": "somebody"}
    url = "/api" + re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[1]), path)
    may = CHANGES[change] if vhost == MINE or "{vhost}" not in path else "root"
    for user in EVERYBODY.split():
        browse = Browser()
        there = {"user": "somebody", "vhost": vhost, "leases": [], "component": "component", "exchange": "exchange"}
        there |= {"name": "name", "properties_key": "properties_key", "id": "id"}
        for name, command in COMMANDS.items():
            is_list = name.startswith("list_") or name == "federation_status"
            answer: Any = [there | {"name": "somebody"}, there] if is_list else there
            if name not in browse.control.answers:
                browse.control.answers[name] = lambda _, answer=answer: answer  # type: ignore[misc]
            assert isinstance(command.changes, bool)
        answer = await browse(verb, url, user=user, json=BODY)
        asked = [(name, fields) for name, fields in browse.control.asked if COMMANDS[name].changes]
        if user in may.split():
            # even an administrator needs permission to enter the virtual host, as in RabbitMQ
            if answer.status_code == 401 and user == "root":
                assert answer.json()["reason"] == "Access refused."
            else:
                assert answer.status_code in (200, 201, 204), (user, answer.text)
        else:
            assert (answer.status_code, asked) == (401, []), user
            assert answer.json()["error"] == "not_authorised"
        if CHANGES[change] is EVERYBODY:  # no tag decides, so the broker must know the user
            assert all(fields.get("user") == user for _, fields in asked), asked


# -- what is seen ------------------------------------------------------------------------------------------------------

THEIRS: Final = {
    "vhost": "theirs", "exchange": "theirs-exchange", "source": "theirs-exchange", "queue": "theirs-queue",
    "destination": "theirs-queue", "dtype": "q", "properties_key": "theirs-key", "name": "theirs-thing:1 -> here:1",
    "user": "theirs-user", "stream": "theirs-queue", "query": "theirs-query", "place": "1", "file": "f", "id": "theirs",
    "publisher": "theirs-publisher",
    "node": "leveret@test", "component": "federation-upstream", "within": "1", "unit": "days", "port": "1",
    "protocol": "amqp",
}  # fmt: skip
SEEN: Final = [route.path for route in API if route.get is not None] + [route.path for route in METRICS]
OBJECTS: Final = {"vhost", "user", "stream", "query", "publisher"}


class RealControl:
    """A broker's own commands, except for the login."""

    def __init__(self, rig: Rig) -> None:
        self._control = rig.control

    async def raw(self, command: str, fields: dict[str, Any], by: Caller) -> bytes:
        if command == "authenticate":
            answer = {"name": fields["name"], "tags": USERS.get(fields["name"], ["management"])}
            return msgspec.json.encode({"ok": answer}) + b"\n"
        return await whole(self._control.answer(call_line(command, fields, by))) + b"\n"

    async def begin(self, command: str, fields: dict[str, Any], by: Caller) -> tuple[bytes, None]:
        return await self.raw(command, fields, by), None

    async def call(self, command: str, fields: dict[str, Any] | None = None, by: Caller = SOMEBODY) -> Any:
        return result_of(await self.raw(command, fields or {}, by))


def fill(tenant: str, rig: Rig) -> None:
    """Make a virtual host with one of everything, all of whose names begin with the tenant's."""
    user = "plain" if tenant == MINE else f"{tenant}-user"
    name = THEIRS["name"].replace("theirs", tenant)  # of a connection
    put = rig.bench.broker.definitions.put
    put("vhost", {"name": tenant, "description": f"{tenant}-description", "tags": [f"{tenant}-tag"]})
    put("user", {"name": user, "tags": ["management"], "limits": {"max-channels": 7}})
    for each in (user, "guest"):
        put("permission", {"user": each, "vhost": tenant, "configure": f"{tenant}.*", "write": ".*", "read": ".*"})
    put("topic_permission", {"user": user, "vhost": tenant, "exchange": f"{tenant}-x", "write": "", "read": ""})
    for component in ("federation-upstream", "operator_policy"):
        value = {"uri": f"amqp://{tenant}", "pattern": f"{tenant}", "definition": {}, "priority": 0, "apply-to": "all"}
        put("parameter", {"vhost": tenant, "component": component, "name": name, "value": value})
    limits = {"vhost": tenant, "component": "vhost-limits", "name": "limits", "value": {"max-queues": 99}}
    put("parameter", limits)
    policy = {"pattern": f"^{tenant}-none", "definition": {"max-length": 1}, "priority": 0, "apply_to": "all"}
    put("policy", {"vhost": tenant, "name": name, **policy})
    client = rig.bench.connect(tenant)
    rig.host.clients.append(client)
    client.peer.name, client.peer.user = name, user
    client.queue(f"{tenant}-queue")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange=f"{tenant}-exchange", type="direct")
    client.call(
        1, grammar.QUEUE_BIND, queue=f"{tenant}-queue", exchange=f"{tenant}-exchange", routing_key=f"{tenant}-key"
    )
    client.publish(f"{tenant}-queue")
    client.call(1, grammar.BASIC_CONSUME, queue=f"{tenant}-queue", consumer_tag=f"{tenant}-tag")
    rig.bench.broker.end_turn(rig.bench.now_us)


@pytest.fixture(scope="module")
def browse() -> Browser:
    rig = Rig()
    rig.host.federator = SimpleNamespace(statuses=list)  # type: ignore[attr-defined]
    rig.host.serving = SimpleNamespace(is_set=lambda: True)  # type: ignore[attr-defined]
    rig.host.streams = SimpleNamespace(archives={})  # type: ignore[attr-defined]
    for tenant in (MINE, "theirs"):
        fill(tenant, rig)
    rig.bench.broker.definitions.put("user", {"name": "lonely", "tags": ["management"]})
    browse = Browser()
    browse.api = Api(RealControl(rig), Cors(()))  # type: ignore[arg-type]
    return browse


def at(path: str, values: dict[str, str]) -> str:
    prefix = "" if path.startswith("/metrics") else "/api"
    return prefix + re.sub(r"\{(\w+)\}", lambda found: quote(values[found[1]], safe=""), path)


@pytest.mark.parametrize("user", ["plain", "lonely"])
@pytest.mark.parametrize("path", SEEN)
async def test_a_user_sees_nothing_of_other_users_and_virtual_hosts(browse: Browser, path: str, user: str) -> None:
    """The user plain has the virtual host `mine`, lonely has none; every name in another user's `theirs` begins so."""
    tricks = "?user=theirs-user&vhost=theirs&vhosts=theirs&all=true&disable_stats=false"
    variables = set(re.findall(r"\{(\w+)\}", path))
    for url, headers in (
        (at(path, THEIRS), {}), (at(path, THEIRS) + tricks, {}), (at(path, THEIRS), {"x-vhost": "theirs"}),
    ):  # fmt: skip
        answer = await browse("GET", url, user=user, headers=headers)
        assert answer.status_code in (200, 400, 401, 404, 503), answer.text
        if answer.status_code == 200:
            assert "theirs" not in answer.text
            assert not variables & OBJECTS or answer.json() == [], "what is another user's is not his to look at"
    mine = {name: value.replace("theirs", MINE) for name, value in THEIRS.items()} | {"user": "plain"}
    answer = await browse("GET", at(path, mine), user=user)
    assert answer.status_code in (200, 400, 401, 404, 503), answer.text
    assert "theirs" not in answer.text
    if user == "lonely":
        assert MINE not in answer.text or answer.status_code != 200


async def test_what_a_user_does_see(browse: Browser) -> None:
    """Makes sure that a broker that shows nothing would not pass the test above."""
    for path in ("queues", "exchanges", "bindings", "connections", "channels", "consumers", "vhosts", "policies"):
        for user, sees in (("plain", MINE), ("root", "theirs")):
            assert sees in (await browse("GET", f"/api/{path}", user=user)).text, (path, user)
    limits = [{"user": "plain", "value": {"max-channels": 7}}]
    assert (await browse("GET", "/api/user-limits", user="plain")).json() == limits
    assert (await browse("GET", "/api/user-limits/plain", user="plain")).json() == limits
    assert (await browse("GET", "/api/user-limits", user="lonely")).json() == []
    assert "theirs-user" in (await browse("GET", "/api/user-limits", user="watch")).text
    for name in ("theirs-user", "nobody-at-all"):
        assert (await browse("GET", f"/api/user-limits/{name}", user="plain")).status_code == 401
