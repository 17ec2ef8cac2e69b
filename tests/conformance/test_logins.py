"""Logins: virtual hosts, passwords, user-id, deleted users, and limits of connections, channels and queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..waiting import until
from .raw import Eof, Frame, RawClient
from .test_permissions import Place, do, place

__all__ = ["place"]

REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
# RabbitMQ waits 3 s before it drops a client that does not understand refusals; polling once a second is enough


def attempt(place: Place, password: str = "secret", vhost: str | None = None) -> tuple[RawClient, Frame]:
    """Connect as the user; return the client and the last answer of its handshake."""
    client = RawClient(place.url_of(place.user, password))
    client.start()
    answer = client.read()
    if answer.name == "connection.tune":
        client.send("connection.tune-ok", 0, **answer.args)
        client.send("connection.open", 0, virtual_host=client.vhost if vhost is None else vhost)
        answer = client.read()
    return client, answer


def refusal(place: Place, **more: Any) -> tuple[int, str, int, int]:
    client, answer = attempt(place, **more)
    with client:
        assert answer.name == "connection.close", answer
        return answer.error


def not_allowed(text: str) -> tuple[int, str, int, int]:
    return 530, f"NOT_ALLOWED - {text}", 10, 40


@pytest.fixture
def permitted(place: Place) -> Place:
    place.administration.call(
        "set_permissions", user=place.user, vhost=place.name, configure=".*", write=".*", read=".*")
    return place


# -- virtual hosts and passwords ---------------------------------------------------------------------------------------


def test_nobody_enters_a_virtual_host_without_a_permission_in_it(place: Place) -> None:
    place.administration.call("set_permissions", user=place.user, vhost="/", configure=".*", write=".*", read=".*")
    assert refusal(place) == not_allowed(f"access to vhost '{place.name}' refused for user '{place.user}'")
    place.permit()  # even permissions that allow nothing let a user in
    client, answer = attempt(place)
    with client:
        assert answer.name == "connection.open-ok"
    place.administration.call("clear_permissions", user=place.user, vhost=place.name)
    assert refusal(place) == not_allowed(f"access to vhost '{place.name}' refused for user '{place.user}'")


def test_a_virtual_host_that_is_not_there_is_told_as_such(place: Place) -> None:
    assert refusal(place, vhost="missing") == not_allowed("vhost missing not found")


def test_who_loses_all_permissions_stays_connected_and_may_do_nothing(permitted: Place) -> None:
    with permitted.connect() as client:
        permitted.administration.call("clear_permissions", user=permitted.user, vhost=permitted.name)
        refusal = permitted.refusal("queue.declare", "queue 'q'")
        assert do(client, "queue.declare", {"queue": "q"}).error == refusal


def test_passwords_change(permitted: Place) -> None:
    permitted.administration.call("change_password", name=permitted.user, password="other")
    assert refusal(permitted) == (403, REFUSED, 0, 0)
    client, answer = attempt(permitted, password="other")
    with client:
        assert answer.name == "connection.open-ok"


def test_without_a_password_nobody_gets_in(permitted: Place) -> None:
    permitted.administration.call("clear_password", name=permitted.user)
    for password in ("", "secret"):
        assert refusal(permitted, password=password) == (403, REFUSED, 0, 0)


def test_an_open_connection_needs_no_password_any_more(permitted: Place) -> None:
    with permitted.connect() as client:
        permitted.administration.call("clear_password", name=permitted.user)
        client.call("queue.declare", queue="q")


@pytest.mark.parametrize("secret", ["other", ""])
def test_a_new_secret_is_accepted_and_says_nothing(permitted: Place, secret: str) -> None:
    with permitted.connect() as client:
        client.call("connection.update-secret", 0, new_secret=secret, reason="it is time")
        client.call("queue.declare", queue="q")
    assert attempt(permitted)[1].name == "connection.open-ok"


def test_the_connections_of_a_user_that_is_deleted_are_closed(permitted: Place) -> None:
    with permitted.connect() as client:
        permitted.administration.call("delete_user", name=permitted.user)
        assert client.closed(0) == (320, f"CONNECTION_FORCED - user '{permitted.user}' is deleted", 0, 0)
    assert refusal(permitted) == (403, REFUSED, 0, 0)
    permitted.administration.call("add_user", name=permitted.user, password="secret", tags=[])  # for the fixture


def test_who_cannot_hear_of_a_refusal_is_left_alone_for_a_while(permitted: Place) -> None:
    with RawClient(permitted.url_of(permitted.user, "wrong")) as client:
        client.start(properties={})
        with pytest.raises(TimeoutError):
            client.read(timeout_s=1.0)  # neither an answer nor the end of the connection
        with pytest.raises(Eof):
            client.read()


# -- user-id -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", [[], ["impersonator"], ["administrator"]])
def test_the_user_id_is_the_publishers_own(permitted: Place, tags: list[str]) -> None:
    permitted.administration.call("set_user_tags", name=permitted.user, tags=tags)
    with permitted.connect() as client:
        own = {"exchange": "x", "user_id": permitted.user}
        assert do(client, "basic.publish", own).name == "basic.qos-ok"
        answer = do(client, "basic.publish", {"exchange": "x", "user_id": "another"})
        if tags == ["impersonator"]:
            assert answer.name == "basic.qos-ok"
        else:
            text = f"user_id property set to 'another' but authenticated user was '{permitted.user}'"
            assert answer.error == (406, f"PRECONDITION_FAILED - {text}", 60, 40)


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(permitted: Place) -> Iterator[Place]:
    yield permitted
    permitted.administration.call("clear_user_limits", user=permitted.user, limit="all")


def vhost_limits(place: Place, definition: dict[str, int]) -> None:
    place.administration.call("set_vhost_limits", vhost=place.name, definition=definition)


def user_limits(place: Place, definition: dict[str, int]) -> None:
    place.administration.call("set_user_limits", user=place.user, definition=definition)


def entered(place: Place) -> RawClient | None:
    client, answer = attempt(place)
    if answer.name == "connection.open-ok":
        return client
    client.socket.close()
    return None


def test_a_virtual_host_has_no_more_connections_than_its_limit(limited: Place) -> None:
    full = not_allowed(f"access to vhost '{limited.name}' refused for user '{limited.user}': connection limit")
    vhost_limits(limited, {"max-connections": 0})
    assert refusal(limited)[1] == f"{full[1]} (0) is reached"
    vhost_limits(limited, {"max-connections": 1})
    with until(lambda: entered(limited)) as first:
        # RabbitMQ counts connections with a delay
        until(lambda: entered(limited) is None)
        code, text, *ids = refusal(limited)
        assert (code, text, *ids) == (530, f"{full[1]} (1) is reached", 10, 40)
        first.call("connection.close", 0)
    until(lambda: entered(limited))
    vhost_limits(limited, {"max-connections": -1})
    assert refusal(limited, vhost="missing") == not_allowed("vhost missing not found")
    until(lambda: entered(limited))


def test_a_user_has_no_more_connections_than_its_limit(limited: Place) -> None:
    full = f"connection refused for user '{limited.user}': user connection limit"
    user_limits(limited, {"max-connections": 1})
    with until(lambda: entered(limited)) as first:
        until(lambda: entered(limited) is None)
        assert refusal(limited) == not_allowed(f"{full} (1) is reached")
        first.socket.close()  # without closing the connection first
    until(lambda: entered(limited))
    user_limits(limited, {"max-connections": 0})
    # reported in this order: a missing virtual host, its limit, the user's limit, missing permissions
    limited.administration.call("clear_permissions", user=limited.user, vhost=limited.name)
    assert refusal(limited) == not_allowed(f"{full} (0) is reached")
    assert refusal(limited, vhost="missing") == not_allowed("vhost missing not found")
    vhost_limits(limited, {"max-connections": 0})
    access = f"access to vhost '{limited.name}' refused for user '{limited.user}'"
    assert refusal(limited) == not_allowed(f"{access}: connection limit (0) is reached")


@pytest.mark.parametrize("limit", [0, 2])
def test_a_user_has_no_more_channels_than_its_limit(limited: Place, limit: int) -> None:
    user_limits(limited, {"max-channels": limit})
    client, answer = attempt(limited)
    with client:
        assert answer.name == "connection.open-ok"
        for number in range(1, limit + 1):
            client.call("channel.open", number)
        text = f"number of channels opened for user '{limited.user}' has reached the maximum allowed user limit of"
        client.send("channel.open", limit + 1)
        assert client.closed(0) == (530, f"NOT_ALLOWED - {text} ({limit})", 0, 0)


def test_the_channels_of_all_connections_of_a_user_count(limited: Place) -> None:
    user_limits(limited, {"max-channels": 2})

    def third_is_refused() -> bool:
        with attempt(limited)[0] as second:
            second.call("channel.open", 1)
            second.send("channel.open", 2)
            return second.read().name == "connection.close"

    with attempt(limited)[0] as first:
        first.call("channel.open", 1)
        until(third_is_refused)
        first.call("channel.close", 1)
        until(lambda: not third_is_refused())


def test_a_virtual_host_has_no_more_queues_than_its_limit(limited: Place) -> None:
    def full(name: str, limit: int) -> tuple[int, str, int, int]:
        text = f"cannot declare queue '{name}': queue limit in vhost '{limited.name}' ({limit}) is reached"
        return 406, f"PRECONDITION_FAILED - {text}", 50, 10

    vhost_limits(limited, {"max-queues": 2})
    with limited.connect() as client:
        client.call("queue.declare", queue="second", exclusive=True)
        for arguments in ({}, {"x-expires": -1}, {"x-dead-letter-exchange": 5}):
            assert client.fail("queue.declare", queue="third", arguments=arguments) == full("third", 2)
        client.call("queue.declare", queue="second", exclusive=True)  # the queue exists already
        client.call("queue.delete", queue="second")
        client.call("queue.declare", queue="third")
        vhost_limits(limited, {"max-queues": 0})
        assert client.fail("queue.declare", queue="fourth") == full("fourth", 0)
        vhost_limits(limited, {"max-queues": -1})
        client.call("queue.declare", queue="fourth")
        vhost_limits(limited, {"max-queues": 2})
        assert client.fail("queue.declare", queue="fifth") == full("fifth", 2)
        limited.administration.call("clear_vhost_limits", vhost=limited.name)
        client.call("queue.declare", queue="fifth")
