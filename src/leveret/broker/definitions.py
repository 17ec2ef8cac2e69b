"""Definitions: what an operator has set, as the tables of RabbitMQ's definitions file (Definitions Export and Import).

Vhosts, users, permissions, policies and parameters. Vhost limits and operator policies are parameters, as in RabbitMQ:
of the components "vhost-limits" and "operator_policy". Each definition is a table; some of its fields are its key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.log import Log, meta_record, meta_record_of
from leveret.wire.errors import ProtocolError
from leveret.wire.table import Value, decode_table, encode_table

Definition = dict[str, Value]
Key = tuple[str, ...]

VHOST: Final = "vhost"
USER: Final = "user"
PERMISSION: Final = "permission"
TOPIC_PERMISSION: Final = "topic_permission"
PARAMETER: Final = "parameter"
GLOBAL_PARAMETER: Final = "global_parameter"
POLICY: Final = "policy"
LINK: Final = "link"  # what a federation link must remember; it is in no file of definitions

# kind -> the fields that are its key; in this order they are written down, each behind what it needs
KEYS: Final[dict[str, tuple[str, ...]]] = {
    VHOST: ("name",),
    USER: ("name",),
    PERMISSION: ("user", "vhost"),
    TOPIC_PERMISSION: ("user", "vhost", "exchange"),
    PARAMETER: ("vhost", "component", "name"),
    GLOBAL_PARAMETER: ("name",),
    POLICY: ("vhost", "name"),
    LINK: ("id",),
}
VHOST_LIMITS: Final = "vhost-limits"
OPERATOR_POLICY: Final = "operator_policy"

# (kind, key, what is there from now on; None: nothing any more)
Listener = Callable[[str, Key, Definition | None], None]


def key_of(kind: str, definition: Definition) -> Key:
    """The key of a definition. KeyError if one of its fields is not there."""
    return tuple([str(definition[field]) for field in KEYS[kind]])


def record_of(kind: str, definition: Definition) -> bytes:
    """Its record. ValueError if there can be none that recovery would read."""
    table = encode_table({"op": "define", "kind": kind, "definition": definition})
    try:
        decode_table(table, 0)
    except ProtocolError as error:
        raise ValueError(error.text) from None
    return meta_record_of(table)


class Definitions:
    """All definitions, journalled; listeners hear of each change after it was made. Nothing is validated here."""

    def __init__(self, log: Log) -> None:
        self.listeners: list[Listener] = []
        self._log = log
        self._tables: dict[str, dict[Key, Definition]] = {kind: {} for kind in KEYS}

    def all(self, kind: str) -> list[Definition]:
        """All of a kind, oldest first."""
        return list(self._tables[kind].values())

    def get(self, kind: str, *key: str) -> Definition | None:
        """The definition with this key."""
        return self._tables[kind].get(key)

    def put(self, kind: str, definition: Definition) -> None:
        """Set a definition, in place of what is there under its key.

        ValueError if it is none that the journal could give back, as numbers of more than 64 bits; nothing has changed.
        """
        key = key_of(kind, definition)
        before = self._tables[kind].get(key)
        record = record_of(kind, definition)
        if before is not None and record == record_of(kind, before):
            return
        self._tables[kind][key] = definition
        self._log.declared(record)
        self._tell(kind, key, definition)

    def remove(self, kind: str, *key: str) -> bool:
        """Take a definition away; False if there is none."""
        if self._tables[kind].pop(key, None) is None:
            return False
        self._log.meta({"op": "undefine", "kind": kind, "key": list(key)})
        self._tell(kind, key, None)
        return True

    def remove_all_of(self, field: str, name: str) -> None:
        """Take away what says something of this user or this virtual host, but not themselves."""
        for kind, fields in KEYS.items():
            if field in fields:
                index = fields.index(field)
                for key in [key for key in self._tables[kind] if key[index] == name]:
                    self.remove(kind, *key)

    def begin(self, vhosts: list[str]) -> None:
        """A journal file begins and says again what there is: all else goes, and all virtual hosts but these."""
        for kind in reversed(KEYS):
            for key in list(self._tables[kind]):
                if kind != VHOST or key[0] not in vhosts:
                    self.remove(kind, *key)

    def _tell(self, kind: str, key: Key, definition: Definition | None) -> None:
        for listener in self.listeners:
            listener(kind, key, definition)

    def snapshot(self) -> list[bytes]:
        """Records of everything, behind one that says that this is all."""
        vhosts: list[Value] = [name for name, in self._tables[VHOST]]
        records = [meta_record({"op": "definitions", "vhosts": vhosts})]
        for kind, table in self._tables.items():
            for definition in table.values():
                records.append(record_of(kind, definition))
        return records
