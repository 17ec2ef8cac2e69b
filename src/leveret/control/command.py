"""What a command is: its arguments as fields, checked when it is decoded, and what it does."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from leveret.control.node import Node

COMMANDS: dict[str, type[Command]] = {}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Command(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="command", tag=_snake_case
):
    """One operation of the broker; its name is the class's in snake case (AddUser: add_user).

    changes: it is audited, and answered when what it changed is on disk; others only ask. secrets: fields whose values
    nobody may read in the audit.
    """

    changes: ClassVar[bool] = True
    secrets: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__bases__:
            COMMANDS.pop(_snake_case(base.__name__), None)  # what others are made of is no command itself
        COMMANDS[_snake_case(cls.__name__)] = cls

    def run(self, node: Node) -> object:
        """Do it. Returns what JSON can say, or what can be awaited for that, or an iterator of such things: then the
        answer is an array, made item by item while it is sent (None: a pause).

        Refused if it can't be done; then nothing was changed.
        """
        raise NotImplementedError


class Query(Command):
    """A command that only asks."""

    changes: ClassVar[bool] = False
