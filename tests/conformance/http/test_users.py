"""Users: creating, changing, deleting, their tags and hashes, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .api import segment
from .pair import Pair

# "secret" with the salt 01020304, as RabbitMQ writes it
HASH = "AQIDBDB9kM21iEUzN1lZ+6VReCsdNqS0sERdAQTcY6Xs3PMz"


@pytest.fixture
def user(both: Pair, unique: str) -> Iterator[str]:
    """The name of a user who is deleted at the end."""
    yield unique
    for api in both.apis:
        api.call("DELETE", f"/api/users/{unique}")


def test_life_of_a_user(both: Pair, user: str) -> None:
    path = f"/api/users/{user}"
    both.get(path, 404)
    both.put(path, {"password": "secret", "tags": "management"})
    both.as_user(user).get("/api/whoami")
    both.put(path, {"password": "other", "tags": "monitoring,management"}, 204)
    both.as_user(user).get("/api/whoami", 401)
    both.as_user(user, "other").get("/api/whoami")
    answers = both.get(path)
    assert set(answers.subject.json["tags"]) == {"monitoring", "management"}
    both.get("/api/users", select=lambda users: [each for each in users if each["name"] == user])
    both.delete(path)
    both.delete(path, 404)
    both.as_user(user, "other").get("/api/whoami", 401)


def test_a_password_hash_is_taken_as_it_is(both: Pair, user: str) -> None:
    path = f"/api/users/{user}"
    both.put(path, {"password_hash": HASH, "tags": "administrator"})
    both.get(path, exact=True)
    both.put(path, {"password_hash": HASH, "tags": ["administrator"]}, 204)
    both.get(path, exact=True)
    both.put(path, {"password_hash": "", "tags": ""}, 204)
    both.get(path, exact=True)
    both.put(path, {"tags": "x, y"}, 204)
    both.get(path, exact=True)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_hashing_algorithms(both: Pair, user: str, algorithm: str) -> None:
    name = f"rabbit_password_hashing_{algorithm}"
    both.put(f"/api/users/{user}", {"password": "secret", "hashing_algorithm": name, "tags": "management"})
    answers = both.call("GET", f"/api/users/{user}")
    assert answers.rabbitmq.json["hashing_algorithm"] == answers.subject.json["hashing_algorithm"]
    both.as_user(user).get("/api/whoami")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"password": "secret"},
        {"tags": 1},
        {"tags": {"a": 1}},
        {"password": 5, "tags": ""},
        {"password": "", "tags": ""},
        {"password_hash": "not base64!", "tags": ""},
        {"password_hash": "AQ==", "tags": ""},
        {"password_hash": 7, "tags": ""},
        {"password": "secret", "password_hash": HASH, "tags": ""},
        {"password": "secret", "tags": "", "hashing_algorithm": "no_such_module"},
        {"password": "secret", "tags": "", "unknown": {"is": "ignored"}},
        {"password": "secret", "tags": ["a", "b"]},
        [],
        "text",
        None,
        b"{",
        b"",
        b"null",
        b"\xff\xfe",
    ],
    ids=repr,
)
def test_what_a_user_may_be_made_of(both: Pair, user: str, body: object) -> None:
    answers = both.call("PUT", f"/api/users/{user}", body)
    if answers.rabbitmq.status < 300:
        both.call("GET", f"/api/users/{user}")
    else:
        both.get(f"/api/users/{user}", 404)


@pytest.mark.parametrize("name", ["ü-ß", "a b", "a/b", "a%b", "日本", "x" * 255, "tab\t", "'quoted\"", "+", "?&=#"])
def test_any_name_will_do(both: Pair, unique: str, name: str) -> None:
    path = f"/api/users/{segment(unique[:6] + name)}"
    both.call("PUT", path, {"password": "secret", "tags": "management"})
    both.call("GET", path)
    both.as_user(unique[:6] + name).call("GET", "/api/whoami")
    both.call("DELETE", path)
    both.call("GET", path)


def test_bulk_delete(both: Pair, unique: str) -> None:
    names = [f"{unique}-{number}" for number in range(3)]
    for name in names:
        both.put(f"/api/users/{name}", {"password": "secret", "tags": ""})
    both.post("/api/users/bulk-delete", {"users": names[:2]}, 204)
    both.get(f"/api/users/{names[0]}", 404)
    both.get(f"/api/users/{names[2]}")
    both.post("/api/users/bulk-delete", {"users": names[2:]}, 204)
    both.get(f"/api/users/{names[2]}", 404)
    for body in ({}, {"users": []}, {"users": "one"}, {"users": [1]}, [], b"{", b""):
        both.call("POST", "/api/users/bulk-delete", body)


def test_users_without_permissions(both: Pair, user: str, vhost: str) -> None:
    def mine(users: list[dict[str, object]]) -> list[dict[str, object]]:
        return [each for each in users if each["name"] == user]

    both.put(f"/api/users/{user}", {"password": "secret", "tags": ""})
    both.get("/api/users/without-permissions/", until=mine, select=mine)
    both.get("/api/users/without-permissions", until=mine, select=mine)
    both.put(f"/api/permissions/{vhost}/{user}", {"configure": "", "write": "", "read": ""})
    both.get("/api/users/without-permissions", select=mine)


def test_nobody_deletes_himself(both: Pair, user: str) -> None:
    both.put(f"/api/users/{user}", {"password": "secret", "tags": "administrator"})
    both.as_user(user).call("DELETE", f"/api/users/{user}")
