"""Definitions: what an operator has set, in the form of RabbitMQ's definitions file (Definitions Export and Import).

They are virtual hosts, users, permissions, policies and parameters. As in RabbitMQ, limits of virtual hosts and
operator policies are parameters, of the components "vhost-limits" and "operator_policy". Each definition is a table,
and some of its fields are its key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.storage.log import Log, meta_record, meta_record_of
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
LINK: Final = "link"  # state of a federation link, which is not exported

# kind -> fields of its key; recorded in this order, so that each kind follows those that it refers to
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

# (kind, key, new definition; None = removed)
Listener = Callable[[str, Key, Definition | None], None]


def key_of(kind: str, definition: Definition) -> Key:
    """Return the key of a definition. Raises KeyError if one of its fields is missing."""
    return tuple([str(definition[field]) for field in KEYS[kind]])


def record_of(kind: str, definition: Definition) -> bytes:
    """Return the journal record of a definition. Raises ValueError if recovery could not read it."""
    table = encode_table({"op": "define", "kind": kind, "definition": definition})
    try:
        decode_table(table, 0)
    except ProtocolError as error:
        raise ValueError(error.text) from None
    return meta_record_of(table)


class Definitions:
    """All definitions, journalled. Listeners are called after each change. Nothing is validated here."""

    def __init__(self, log: Log) -> None:
        self.listeners: list[Listener] = []
        self._log = log
        self._tables: dict[str, dict[Key, Definition]] = {kind: {} for kind in KEYS}

    def all(self, kind: str) -> list[Definition]:
        """Return all definitions of a kind, oldest first."""
        return list(self._tables[kind].values())

    def get(self, kind: str, *key: str) -> Definition | None:
        """Return the definition with this key, None if there is no such definition."""
        return self._tables[kind].get(key)

    def put(self, kind: str, definition: Definition) -> None:
        """Set a definition, replacing one with the same key.

        Raises ValueError, without any change, if the journal cannot represent it, such as numbers of more than 64 bits.
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
        """Remove a definition; return False if it does not exist."""
        if self._tables[kind].pop(key, None) is None:
            return False
        self._log.meta({"op": "undefine", "kind": kind, "key": list(key)})
        self._tell(kind, key, None)
        return True

    def remove_all_of(self, field: str, name: str) -> None:
        """Remove all definitions that refer to this user or virtual host (field), but not its own definition."""
        for kind, fields in KEYS.items():
            if field in fields:
                index = fields.index(field)
                for key in [key for key in self._tables[kind] if key[index] == name]:
                    self.remove(kind, *key)

    def begin(self, vhosts: list[str]) -> None:
        """Begin to restore a journal file's snapshot: remove everything but these virtual hosts."""
        for kind in reversed(KEYS):
            for key in list(self._tables[kind]):
                if kind != VHOST or key[0] not in vhosts:
                    self.remove(kind, *key)

    def _tell(self, kind: str, key: Key, definition: Definition | None) -> None:
        for listener in self.listeners:
            listener(kind, key, definition)

    def snapshot(self) -> list[bytes]:
        """Return records of all definitions, after one that begins the snapshot."""
        vhosts: list[Value] = [name for name, in self._tables[VHOST]]
        records = [meta_record({"op": "definitions", "vhosts": vhosts})]
        for kind, table in self._tables.items():
            for definition in table.values():
                records.append(record_of(kind, definition))
        return records
