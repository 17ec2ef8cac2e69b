"""Limits of virtual hosts and users, set one by one as the HTTP API does, or all at once."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.control.command import COMMANDS
from leveret.control.host import Host
from leveret.control.node import BrokerNode
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND, Refused

from .support import Bench


class Operator:
    """Runs the commands."""

    def __init__(self) -> None:
        self.node = BrokerNode(Bench().broker, cast(Host, None), "leveret@test", "/data", "1", "interpreted")

    def do(self, command: str, **fields: Any) -> Any:
        return msgspec.convert({"command": command, **fields}, COMMANDS[command]).run(self.node)

    def refusal(self, command: str, **fields: Any) -> str:
        with pytest.raises(Refused) as raised:
            self.do(command, **fields)
        return raised.value.kind


def test_one_limit_after_the_other() -> None:
    operator = Operator()
    operator.do("set_vhost_limit", name="max-queues", value=5)
    operator.do("set_vhost_limit", name="max-connections", value=7)
    assert operator.do("list_vhost_limits") == [{"vhost": "/", "value": {"max-queues": 5, "max-connections": 7}}]
    assert operator.do("list_vhost_limits", vhost="other") == []
    operator.do("clear_vhost_limit", name="max-queues")
    operator.do("clear_vhost_limit", name="max-queues")
    assert operator.do("list_vhost_limits", vhost="/") == [{"vhost": "/", "value": {"max-connections": 7}}]
    operator.do("clear_vhost_limit", name="max-connections")
    assert operator.do("list_vhost_limits", vhost="/") == []
    operator.do("set_vhost_limits", definition={"max-queues": -1})
    assert operator.do("list_vhost_limits") == [{"vhost": "/", "value": {"max-queues": -1}}]
    operator.do("clear_vhost_limits")
    operator.do("clear_vhost_limits")
    assert operator.do("list_vhost_limits") == []


def test_limits_of_users_stay_until_they_are_cleared() -> None:
    operator = Operator()
    operator.do("set_user_limits", user="guest", definition={"max-channels": 5})
    operator.do("set_user_limit", user="guest", name="max-connections", value=7)
    assert operator.do("list_user_limits") == [{"user": "guest", "value": {"max-channels": 5, "max-connections": 7}}]
    assert operator.do("list_user_limits", user="other") == []
    assert operator.node.broker.users.by_name["guest"].limits == {"max-channels": 5, "max-connections": 7}
    assert operator.node.broker.users.accepts("guest", "guest")
    operator.do("clear_user_limits", user="guest", limit="max-channels")
    assert operator.do("list_user_limits", user="guest") == [{"user": "guest", "value": {"max-connections": 7}}]
    operator.do("clear_user_limits", user="guest")
    assert operator.do("list_user_limits") == []


@pytest.mark.parametrize(("command", "fields", "kind"), [
    ("set_vhost_limit", {"name": "max-x", "value": 1}, BAD_REQUEST),
    ("set_vhost_limit", {"name": "max-queues", "value": 1 << 64}, BAD_REQUEST),
    ("set_vhost_limit", {"name": "max-queues", "value": 1, "vhost": "other"}, NOT_FOUND),
    ("set_vhost_limits", {"definition": 7}, BAD_REQUEST),
    ("clear_vhost_limit", {"name": "max-queues", "vhost": "other"}, NOT_FOUND),
    ("clear_vhost_limits", {"vhost": "other"}, NOT_FOUND),
    ("set_user_limit", {"user": "guest", "name": "max-x", "value": 1}, BAD_REQUEST),
    ("set_user_limit", {"user": "other", "name": "max-channels", "value": 1}, NOT_FOUND),
    ("set_user_limits", {"user": "guest", "definition": "max-channels"}, BAD_REQUEST),
    ("clear_user_limits", {"user": "other"}, NOT_FOUND),
])  # fmt: skip
def test_limits_that_are_refused(command: str, fields: dict[str, Any], kind: str) -> None:
    operator = Operator()
    assert operator.refusal(command, **fields) == kind
    assert operator.do("list_vhost_limits") == operator.do("list_user_limits") == []
