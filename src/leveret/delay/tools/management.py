"""Reads bindings, feature flags and policies, which AMQP cannot list, from the HTTP API of RabbitMQ or leveret."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote, urlsplit

from leveret.client.protocol.url import Address

TIMEOUT_S: Final = 30.0


class ApiError(Exception):
    """The HTTP API did not answer, or with an error."""


class Management:
    """The HTTP API at ``url``. Login is with the user of that URL, or else of the AMQP address."""

    def __init__(self, url: str, address: Address) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL of the HTTP API begins with http:// or https://, not {url!r}")
        user, password = parts.username or address.user, parts.password or address.password
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/').removesuffix('/api')}"
        self._vhost = quote(address.vhost, safe="")
        self._login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def bindings(self) -> set[tuple[str, str, str, str]]:
        """Return (source, "queue" or "exchange", destination, routing key) of every binding in the virtual host."""
        return {
            (one["source"], one["destination_type"], one["destination"], one["routing_key"])
            for one in self._get(f"bindings/{self._vhost}")
        }

    def policies(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Return the effective policy definitions, by queue, of the queues with this prefix that have a policy."""
        columns = "columns=name,effective_policy_definition"
        return {
            one["name"]: one["effective_policy_definition"]
            for one in self._get(f"queues/{self._vhost}?{columns}")
            if one["name"].startswith(prefix) and one.get("effective_policy_definition")
        }

    def feature_flags(self) -> set[str]:
        """Return the enabled feature flags."""
        return {str(one["name"]) for one in self._get("feature-flags") if one.get("state") == "enabled"}

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self._base}/api/{path}", headers={"Authorization": self._login})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ApiError(f"{self._base}/api/{path} replied {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise ApiError(f"{self._base} does not answer: {error}") from None
