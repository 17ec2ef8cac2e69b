"""A running broker of either kind, and virtual hosts on it: the same HTTP API calls work on both."""

from __future__ import annotations

from typing import Any, Final

from leveret.testing.processes import LeveretProcess, RabbitMQProcess, free_port

from ...conformance.http.api import Answer, Api, segment
from .site import Site

LEVERET: Final = "leveret"
RABBITMQ: Final = "rabbitmq"
FEDERATING: Final = ("rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management")
PLAIN: Final = ("rabbitmq_management",)


class Node:
    """A broker."""

    def __init__(self, kind: str, plugins: tuple[str, ...] = FEDERATING) -> None:
        self.kind = kind  # LEVERET or RABBITMQ
        self.process: LeveretProcess | RabbitMQProcess  # may be stopped, killed and restarted on the same ports
        if kind == LEVERET:
            self.process = LeveretProcess(admin=True)
            url = self.process.admin_url
        else:
            port = free_port()
            settings = f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1"
            self.process = RabbitMQProcess(plugins=plugins, settings=settings)
            url = f"http://127.0.0.1:{port}"
        self.api = Api(url)

    @property
    def cluster(self) -> str:
        """The cluster name, which identifies the broker to links."""
        return str(self.get("/cluster-name")["name"])

    def call(self, verb: str, path: str, body: object = None, *allowed: int) -> Answer:
        """Send a request, which must succeed or have one of the allowed statuses; `path` is relative to /api."""
        answer = self.api.call(verb, f"/api{path}", body)
        assert answer.status < 300 or answer.status in allowed, f"{self.kind}: {verb} {path}: {answer}"
        return answer

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return self.call("GET", path).json

    def site(self, name: str) -> Site:
        self.call("PUT", f"/vhosts/{name}", {})
        self.grant(name, "guest", ".*", ".*", ".*")
        return Site(self, name)

    def away(self, how: str) -> None:
        """Stop it, or kill it."""
        if how == "kill":
            self.process.kill()
        else:
            assert self.process.stop() == 0, self.process.output

    def back(self) -> None:
        self.process.start()

    def user(self, name: str) -> None:
        """Create a user without permissions, whose password is the name."""
        self.call("PUT", f"/users/{name}", {"password": name, "tags": ""})

    def grant(self, vhost: str, user: str, configure: str, write: str, read: str) -> None:
        """Set a user's permissions on a virtual host."""
        given = {"configure": configure, "write": write, "read": read}
        self.call("PUT", f"/permissions/{segment(vhost)}/{user}", given)

