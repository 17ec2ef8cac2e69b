"""Users (RabbitMQ, Access Control)."""

from __future__ import annotations

from typing import ClassVar

from leveret.broker.definitions import USER
from leveret.broker.users import SHA256, hash_password
from leveret.control.command import Command, Query
from leveret.control.node import Node
from leveret.control.refusal import CONFLICT, NOT_AUTHORISED, Refused, not_found


class ListUsers(Query):
    """The definitions of all users."""

    def run(self, node: Node) -> object:
        return node.broker.definitions.all(USER)


class AddUser(Command):
    """Add a user that is not there yet."""

    name: str
    password: str
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    def run(self, node: Node) -> object:
        if self.name in node.broker.users.by_name:
            raise Refused(CONFLICT, f"user '{self.name}' already exists")
        password_hash = hash_password(self.password, node.broker.random_bytes)
        node.broker.definitions.put(
            USER,
            {"name": self.name, "password_hash": password_hash, "hashing_algorithm": SHA256, "tags": [], "limits": {}},
        )
        return None


class DeleteUser(Command):
    """Delete a user with all permissions."""

    name: str

    def run(self, node: Node) -> object:
        if not node.broker.delete_user(self.name):
            raise not_found(f"user '{self.name}' does not exist")
        return None


class Authenticate(Query):
    """Whether this is the user's password: answers with the name and the tags."""

    name: str
    password: str
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    def run(self, node: Node) -> object:
        if not node.broker.users.accepts(self.name, self.password):
            raise Refused(NOT_AUTHORISED, "Not_Authorized")
        return {"name": self.name, "tags": node.broker.users.by_name[self.name].tags}
