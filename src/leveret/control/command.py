"""The base class of commands: arguments are fields, checked when the command is decoded; `run` does the work."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from leveret.control.node import BrokerNode

COMMANDS: dict[str, type[Command]] = {}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Command(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="command", tag=_snake_case
):
    """One operation of the broker; its name is that of the class in snake case (AddUser: add_user)."""

    # whether the command is audited, and answered after its changes are on disk; others only read
    changes: ClassVar[bool] = True
    secrets: ClassVar[tuple[str, ...]] = ()  # fields whose values must not appear in the audit log

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__bases__:
            COMMANDS.pop(_snake_case(base.__name__), None)  # what others are made of is no command itself
        COMMANDS[_snake_case(cls.__name__)] = cls

    def run(self, node: BrokerNode) -> object:
        """Do it.

        Returns a value for JSON, an awaitable of one, or an iterator of such values: then the answer is an array that
        is made item by item while it is sent (an item None is a pause).

        Raises Refused if the command cannot be carried out; then nothing was changed.
        """
        raise NotImplementedError


class Query(Command):
    """A command that only reads."""

    changes: ClassVar[bool] = False
