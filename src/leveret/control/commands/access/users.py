"""Users (RabbitMQ, Access Control)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import ClassVar

from leveret.broker.access.users import ALGORITHMS, SHA256
from leveret.broker.storage.definitions import USER
from leveret.control.command import Command, Query
from leveret.control.node import BrokerNode
from leveret.control.passwords import authenticated, password_fields
from leveret.control.refusal import CONFLICT, Refused, bad_request, not_found
from leveret.control.validation.checks import user_named
from leveret.net.connections.logins import LoginHeld
from leveret.wire.table import Value

NO_PASSWORD: dict[str, Value] = {"password_hash": "", "hashing_algorithm": SHA256}


class ListUsers(Query):
    """List the definitions of all users."""

    def run(self, node: BrokerNode) -> object:
        return node.broker.definitions.all(USER)


class AddUser(Command):
    """Add a new user, with a password or with its hash as in definitions."""

    name: str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str = SHA256
    tags: tuple[str, ...] = ()
    secrets: ClassVar[tuple[str, ...]] = ("password", "password_hash")

    def run(self, node: BrokerNode) -> object:
        if not self.name:
            raise bad_request("user name should not be empty")
        return self._add(node)

    async def _add(self, node: BrokerNode) -> None:
        password = await _password(node, self.password, self.password_hash, self.hashing_algorithm)
        if self.name in node.broker.users.by_name:
            raise Refused(CONFLICT, f'User "{self.name}" already exists')
        node.broker.definitions.put(USER, {"name": self.name, **password, "tags": list(self.tags), "limits": {}})


class ChangePassword(Command):
    """Change the password of a user, given as a password or as its hash as in definitions."""

    name: str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str = SHA256
    secrets: ClassVar[tuple[str, ...]] = ("password", "password_hash")

    def run(self, node: BrokerNode) -> object:
        user_named(node, self.name)
        return self._change(node)

    async def _change(self, node: BrokerNode) -> None:
        _change(node, self.name, await _password(node, self.password, self.password_hash, self.hashing_algorithm))


class ClearPassword(Command):
    """Disable password login for this user."""

    name: str

    def run(self, node: BrokerNode) -> None:
        _change(node, self.name, NO_PASSWORD)


class SetUserTags(Command):
    """Replace the tags of a user."""

    name: str
    tags: tuple[str, ...] = ()

    def run(self, node: BrokerNode) -> None:
        _change(node, self.name, {"tags": list(self.tags)})


class PutUser(Command):
    """Add a user, or replace password and tags of an existing one; without a password, password login is disabled."""

    name: str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    tags: tuple[str, ...] | str = ()  # also as one comma-separated text
    limits: dict[str, int] | None = None  # max-connections and max-channels, replacing the present limits
    secrets: ClassVar[tuple[str, ...]] = ("password", "password_hash")

    def run(self, node: BrokerNode) -> object:
        if not self.name:
            raise bad_request("user name should not be empty")
        return self._put(node)

    async def _put(self, node: BrokerNode) -> None:
        password = NO_PASSWORD
        if self.password or self.password_hash:
            algorithm = self.hashing_algorithm or SHA256
            password = await _password(node, self.password or None, self.password_hash or None, algorithm)
        before = node.broker.definitions.get(USER, self.name) or {"name": self.name, "limits": {}}
        words = self.tags.split(",") if isinstance(self.tags, str) else self.tags
        tags: list[Value] = [word.strip() for word in words if word.strip()]
        limits: dict[str, Value] = {} if self.limits is None else {"limits": dict(self.limits)}
        node.broker.definitions.put(USER, {**before, **password, **limits, "tags": tags})


class HashPassword(Query):
    """Return the definition's fields for a password, with a new salt each time."""

    password: str
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    def run(self, node: BrokerNode) -> object:
        return _password(node, self.password, None, SHA256)


class DeleteUser(Command):
    """Delete a user and its permissions; its connections are closed."""

    name: str

    def run(self, node: BrokerNode) -> None:
        if not node.broker.delete_user(self.name):
            raise not_found(f'User "{self.name}" does not exist')
        for peer in node.host.peers():
            if peer.user == self.name:
                node.host.close(peer, f"user '{self.name}' is deleted")


class Authenticate(Query):
    """Check a user's password; answers with the user's name and tags.

    After failures of this user from this address the password is not checked at once: the answer is wait_us and due_us,
    and the caller is to ask again after wait_us with this due_us. So a delayed login waits in the caller, where it
    blocks no other calls.
    """

    name: str
    password: str
    address: str = ""  # IP address of the login, "" = not a login
    protocol: str = "http"  # protocol of the login
    is_direct: bool = True  # no proxy, and no other site's page in a browser on this machine, is in between
    due_us: int = 0
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    def run(self, node: BrokerNode) -> object:
        return self._authenticate(node)

    async def _authenticate(self, node: BrokerNode) -> object:
        attempt = (self.name, self.password, self.address, self.protocol, self.is_direct, self.due_us)
        try:
            user = await authenticated(node, *attempt)
        except LoginHeld as held:
            return {"wait_us": held.wait_us, "due_us": held.due_us}
        return {"name": user.name, "tags": user.tags}


async def _password(
    node: BrokerNode, password: str | None, password_hash: str | None, algorithm: str
) -> dict[str, Value]:
    """Return the definition's fields for a password. Raises Refused unless exactly one of both is given and valid."""
    if (password is None) == (password_hash is None):
        raise bad_request("give either password or password_hash")
    if password is not None:
        if not password:
            raise bad_request("password cannot be an empty string")
        return await password_fields(node, password)
    assert password_hash is not None
    if algorithm not in ALGORITHMS:
        raise bad_request(f"unknown hashing algorithm {algorithm!r}; known algorithms: {', '.join(ALGORITHMS)}")
    try:
        b64decode(password_hash, validate=True)
    except binascii.Error:
        raise bad_request("the password hash is not base64") from None
    return {"password_hash": password_hash, "hashing_algorithm": algorithm}


def _change(node: BrokerNode, name: str, fields: dict[str, Value]) -> None:
    user_named(node, name)
    definition = node.broker.definitions.get(USER, name)
    assert definition is not None
    node.broker.definitions.put(USER, {**definition, **fields})
