"""Administers users, virtual hosts, permissions, policies, limits and definitions of either broker.

Commands and fields are leveret's. For RabbitMQ, `REQUESTS` translates them to requests of its HTTP API.
"""

from __future__ import annotations

import base64
import json
from http.client import HTTPConnection
from typing import Any, Final, Protocol
from urllib.parse import quote

from leveret.control.calls.client import ControlClient
from leveret.control.refusal import BAD_REQUEST, CONFLICT, INTERNAL, NOT_AUTHORISED, NOT_FOUND, Refused

_POLICY: Final = ("pattern", "definition", "priority", "apply_to")
# command -> HTTP method, path with fields of the command, and the fields that make the body
REQUESTS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "add_user": ("PUT", "users/{name}", ("password", "tags")),
    "delete_user": ("DELETE", "users/{name}", ()),
    "list_users": ("GET", "users", ()),
    "add_vhost": ("PUT", "vhosts/{name}", ("description", "tags")),
    "delete_vhost": ("DELETE", "vhosts/{name}", ()),
    "list_vhosts": ("GET", "vhosts", ()),
    "set_permissions": ("PUT", "permissions/{vhost}/{user}", ("configure", "write", "read")),
    "clear_permissions": ("DELETE", "permissions/{vhost}/{user}", ()),
    "list_permissions": ("GET", "vhosts/{vhost}/permissions", ()),
    "set_topic_permissions": ("PUT", "topic-permissions/{vhost}/{user}", ("exchange", "write", "read")),
    "clear_topic_permissions": ("DELETE", "topic-permissions/{vhost}/{user}", ()),
    "set_policy": ("PUT", "policies/{vhost}/{name}", _POLICY),
    "clear_policy": ("DELETE", "policies/{vhost}/{name}", ()),
    "list_policies": ("GET", "policies/{vhost}", ()),
    "set_operator_policy": ("PUT", "operator-policies/{vhost}/{name}", _POLICY),
    "clear_operator_policy": ("DELETE", "operator-policies/{vhost}/{name}", ()),
    "list_operator_policies": ("GET", "operator-policies/{vhost}", ()),
    "set_parameter": ("PUT", "parameters/{component}/{vhost}/{name}", ("value", "vhost", "component", "name")),
    "clear_parameter": ("DELETE", "parameters/{component}/{vhost}/{name}", ()),
    "get_queue": ("GET", "queues/{vhost}/{name}", ()),
    "get_exchange": ("GET", "exchanges/{vhost}/{name}", ()),
    "list_parameters": ("GET", "parameters", ()),
    "set_global_parameter": ("PUT", "global-parameters/{name}", ("value", "name")),
    "clear_global_parameter": ("DELETE", "global-parameters/{name}", ()),
    "list_global_parameters": ("GET", "global-parameters", ()),
    "list_connections": ("GET", "connections", ()),
    "export_definitions": ("GET", "definitions", ()),
}
# limits that the HTTP API sets one by one, and leveret's commands as a whole
LIMITS: Final = {
    "vhost_limits": ("vhost-limits/{vhost}/", ("max-connections", "max-queues")),
    "user_limits": ("user-limits/{user}/", ("max-connections", "max-channels")),
}
KINDS: Final = {400: BAD_REQUEST, 401: NOT_AUTHORISED, 404: NOT_FOUND, 409: CONFLICT}


class Administration(Protocol):
    """Sets up a broker for a test."""

    def call(self, command: str, **fields: Any) -> Any:
        """Run a command; the result has the field names of RabbitMQ's HTTP API. Raises Refused if it is refused."""


class ControlAdministration:
    """Calls the control socket of the leveret with this data directory."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir

    def call(self, command: str, **fields: Any) -> Any:
        with ControlClient(self._data_dir, timeout_s=30) as control:
            return control.call(command, **fields)


class HttpAdministration:
    """Calls RabbitMQ's HTTP API at host:port, as guest."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    def call(self, command: str, **fields: Any) -> Any:
        subject = command.partition("_")[2]
        if subject in LIMITS:
            return self._limit(subject, fields.get("definition", {}), fields)
        if command == "import_definitions":
            return self.request("POST", "definitions", fields["definitions"])
        if command in ("change_password", "clear_password", "set_user_tags"):
            return self._change_user(fields["name"], fields)
        method, path, body = REQUESTS[command]
        given = {name.replace("apply_to", "apply-to"): fields[name] for name in body if name in fields}
        if isinstance(given.get("tags"), list | tuple):
            given["tags"] = ",".join(given["tags"])
        return self.request(method, _fill(path, fields), None if method in ("GET", "DELETE") else given)

    def _change_user(self, name: str, fields: dict[str, Any]) -> None:
        user = self.request("GET", _fill("users/{name}", fields), None)
        changed = {"password_hash": user["password_hash"], "tags": ",".join(fields.get("tags", user["tags"]))}
        if "tags" not in fields:
            del changed["password_hash"]
            changed |= {"password": fields["password"]} if "password" in fields else {"password_hash": ""}
        self.request("PUT", _fill("users/{name}", fields), changed)

    def _limit(self, subject: str, definition: dict[str, int], fields: dict[str, Any]) -> None:
        path, names = LIMITS[subject]
        for name in names:
            if name in definition:
                self.request("PUT", _fill(path, fields) + name, {"value": definition[name]})
            else:
                self.request("DELETE", _fill(path, fields) + name, None)

    def request(self, method: str, path: str, body: object) -> Any:
        """Send one request below /api/ and return the decoded answer. Raises Refused for an error status."""
        credentials = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
        connection = HTTPConnection(self._host, self._port, timeout=30)
        try:
            connection.request(method, "/api/" + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise Refused(KINDS.get(response.status, INTERNAL), text.decode())
        return json.loads(text) if text else None


def _fill(path: str, fields: dict[str, Any]) -> str:
    return path.format_map({name: quote(str(value), safe="") for name, value in fields.items()})
