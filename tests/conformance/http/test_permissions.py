"""Permissions and topic permissions of users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .pair import Pair

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def user(both: Pair, vhost: str) -> Iterator[str]:
    """A user of this test, without permissions."""
    name = f"{vhost}-user"
    both.put(f"/api/users/{name}", {"password": "secret", "tags": "management"})
    yield name
    both.call("DELETE", f"/api/users/{name}")


def test_permissions_come_and_go(both: Pair, vhost: str, user: str) -> None:
    path = f"/api/permissions/{vhost}/{user}"
    both.get(path, 404)
    both.put(path, {"configure": "^a", "write": "", "read": "b$"})
    both.get(path, exact=True)
    both.put(path, ALL, 204)
    both.get(path, exact=True)
    both.get(f"/api/users/{user}/permissions", exact=True)
    both.get(f"/api/vhosts/{vhost}/permissions", exact=True)
    both.get("/api/permissions", select=lambda items: [each for each in items if each["user"] == user])
    both.delete(path)
    both.delete(path, 404)
    both.get(path, 404)
    both.get(f"/api/users/{user}/permissions", exact=True)


def test_topic_permissions_come_and_go(both: Pair, vhost: str, user: str) -> None:
    path = f"/api/topic-permissions/{vhost}/{user}"
    both.get(path, 404)
    both.put(path, {"exchange": "amq.topic", "write": "^a", "read": ".*"})
    both.get(path, exact=True)
    both.put(path, {"exchange": "other", "write": "", "read": "x"}, None)
    both.get(path)
    both.get(f"/api/users/{user}/topic-permissions")
    both.get(f"/api/vhosts/{vhost}/topic-permissions")
    both.get("/api/topic-permissions", select=lambda items: [each for each in items if each["user"] == user])
    both.delete(path)
    both.get(path, 404)
    both.call("DELETE", path)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"configure": ".*"},
        {"configure": ".*", "write": ".*"},
        {**ALL, "read": 1},
        {**ALL, "configure": "("},
        {**ALL, "write": "*"},
        {**ALL, "more": 1},
        {**ALL, "read": None},
        [],
        b"",
        b"{",
    ],
    ids=repr,
)
def test_what_a_permission_may_be_made_of(both: Pair, vhost: str, user: str, body: object) -> None:
    both.call("PUT", f"/api/permissions/{vhost}/{user}", body)
    both.call("GET", f"/api/permissions/{vhost}/{user}")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"exchange": "amq.topic"},
        {"exchange": "amq.topic", "write": "("},
        {"exchange": "amq.topic", "write": "(", "read": ""},
        {"exchange": "amq.topic", "write": 1, "read": ""},
        {"write": "", "read": ""},
        {"exchange": "no-such-exchange", "write": "", "read": ""},
        {"exchange": "", "write": "", "read": ""},
        [],
        b"",
    ],
    ids=repr,
)
def test_what_a_topic_permission_may_be_made_of(both: Pair, vhost: str, user: str, body: object) -> None:
    both.call("PUT", f"/api/topic-permissions/{vhost}/{user}", body)
    both.call("GET", f"/api/topic-permissions/{vhost}/{user}")


def test_unknown_users_and_virtual_hosts(both: Pair, vhost: str, user: str) -> None:
    topic = {"exchange": "amq.topic", "write": "", "read": ""}
    for kind, body in (("permissions", ALL), ("topic-permissions", topic)):
        for path in (f"/api/{kind}/{vhost}/nobody", f"/api/{kind}/nowhere/{user}", f"/api/{kind}/nowhere/nobody"):
            both.call("GET", path)
            both.call("PUT", path, body)
            both.call("DELETE", path)
        both.call("GET", f"/api/users/nobody/{kind}")
        both.call("GET", f"/api/vhosts/nowhere/{kind}")
