"""Import of definitions: all of a file, or nothing of it.

The rules are RabbitMQ's: users, permissions, policies and parameters replace existing ones; existing queues, exchanges
and bindings stay as they are. Objects with reserved names (amq.*) are ignored, and so are bindings with a missing end.
Unlike RabbitMQ, which applies entry after entry and stops at the first error, everything is checked before anything is
changed. The changes are made in steps, so that messages are served in between. If an owner, such as a virtual host, is
deleted meanwhile, the file's objects in it are skipped.
"""

from __future__ import annotations

import functools
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from leveret.broker.access.pattern import refused_pattern
from leveret.broker.access.users import ALGORITHMS, MD5, SHA256, hash_password
from leveret.broker.broker import Broker
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.methods import exchange_methods, queue_methods
from leveret.broker.methods.binding_methods import HistoryDelivery
from leveret.broker.storage.definitions import (
    GLOBAL_PARAMETER,
    PARAMETER,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER,
    VHOST,
    VHOST_LIMITS,
    Definition,
    record_of,
)
from leveret.broker.vhost import VHost
from leveret.control.definitions.document import (
    BindingEntry,
    Document,
    ExchangeEntry,
    ParameterEntry,
    PolicyEntry,
    QueueEntry,
    UserEntry,
    VhostEntry,
)
from leveret.control.definitions.exporting import RESERVED
from leveret.control.methods import method_of
from leveret.control.refusal import BAD_REQUEST, Refused, bad_request
from leveret.control.sliced import Steps
from leveret.control.tables import encoded_table
from leveret.control.validation.parameters import COMPONENTS, refused_parameter, refused_policy, refused_user_limits
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.method import Method
from leveret.wire.table import Value

# users of brokers before 3.6.0 have MD5 hashes, and the files do not say so
_OLD: Final = re.compile(r"3\.[0-5]\.")
Entry = TypeVar("Entry")
_ANYTHING: Final[Definition] = {"configure": ".*", "write": ".*", "read": ".*"}


class Import:
    """The import of a file: `steps` checks everything (raises Refused), then `changes` changes the broker.

    With `vhost`, all entries belong to this virtual host, whatever they say, and the file's users, virtual hosts and
    permissions are ignored; None imports the whole file. `user` gets full permissions in new virtual hosts, "" =
    nobody.
    """

    def __init__(self, broker: Broker, document: Document, vhost: str | None = None, user: str = "") -> None:
        self.warnings: list[str] = []  # what was ignored
        self._broker = broker
        self._vhost = vhost
        self._definitions: list[tuple[str, Definition]] = []
        self._of_new_users: list[Definition] = []  # permissions given in the entries of the users
        self._exchanges: dict[tuple[str, str], Method] = {}
        self._queues: dict[tuple[str, str], Method] = {}
        self._bindings: list[tuple[str, BindingEntry, bytes]] = []
        self._generations = _generations(broker)
        self._users = set(broker.users.by_name)
        self._vhosts = set(broker.vhosts)
        self.steps = self._checked(document, user)

    def check(self) -> Import:
        """Run the remaining checks at once. Raises Refused."""
        for _ in self.steps:
            pass
        return self

    def is_stale(self) -> bool:
        """Return whether objects were declared or deleted since the creation, so that the checks may be wrong."""
        return self._generations != _generations(self._broker)

    def _checked(self, document: Document, user: str) -> Steps[None]:
        if self._vhost is None:
            yield from self._take_users(document)
            yield from self._take_vhosts(document, user)
            yield from self._take_permissions(document)
        yield from self._each("exchanges", document.exchanges, self._take_exchange)
        yield from self._take_rules(document)
        yield from self._each("queues", document.queues, self._take_queue)
        yield from self._each("bindings", document.bindings, self._take_binding)
        self._check_limits()

    def apply(self, now_us: int) -> list[str]:
        """Run the remaining checks and change the broker at once; return the warnings. Raises Refused."""
        self.check()
        for _ in self.changes(lambda: now_us):
            pass
        return self.warnings

    def changes(self, now_us: Callable[[], int]) -> Steps[None]:
        """Change the broker, one entry in each step."""
        vhosts = self._broker.vhosts
        for kind, definition in self._definitions:
            yield
            if self._has_owner(definition):
                self._broker.definitions.put(kind, definition)
        for (vhost_name, name), method in self._exchanges.items():
            yield
            vhost = vhosts.get(vhost_name)
            if vhost is not None and name not in vhost.exchanges:
                exchange_methods.create(vhost, method, name)
        for (vhost_name, name), method in self._queues.items():
            yield
            vhost = vhosts.get(vhost_name)
            if vhost is not None and name not in vhost.queues:
                vhost.add_queue(queue_methods.new_queue(vhost, method, name), 0, now_us())
        for vhost_name, entry, arguments in self._bindings:
            yield
            vhost = vhosts.get(vhost_name)
            if vhost is not None:
                _bind(vhost, entry, arguments, now_us())

    def _has_owner(self, definition: Definition) -> bool:
        """Return whether the virtual host and the user that the definition belongs to, if any, exist."""
        vhost, user = definition.get("vhost"), definition.get("user")
        return (vhost is None or vhost in self._broker.vhosts) and (user is None or user in self._broker.users.by_name)

    # -- definitions ---------------------------------------------------------------------------------------------------

    def _each(self, section: str, entries: Sequence[Entry], take: Callable[[Entry], None]) -> Steps[None]:
        """Take the entries of a section. An error names the entry by its index and name."""
        for index, entry in enumerate(entries):
            yield
            try:
                take(entry)
            except (Refused, ProtocolError, ValueError) as error:
                what = getattr(entry, "name", "") or getattr(entry, "user", "") or getattr(entry, "source", "")
                text = error.text if isinstance(error, ProtocolError) else str(error)
                raise Refused(BAD_REQUEST, f"{section}[{index}] {what!r}: {text}") from None

    def _put(self, kind: str, definition: Definition) -> None:
        record_of(kind, definition)  # ValueError if the journal could not restore it
        self._definitions.append((kind, definition))

    def _take_users(self, document: Document) -> Steps[None]:
        version = document.rabbitmq_version or document.rabbit_version or ""
        algorithm = MD5 if _OLD.match(version) else SHA256

        def take(entry: UserEntry) -> None:
            self._users.add(entry.name)
            is_new = entry.name not in self._broker.users.by_name
            self._put(USER, self._user(entry, algorithm))
            for vhost, permission in entry.permissions.items() if is_new else ():
                patterns: Definition = {
                    "configure": permission.configure, "write": permission.write, "read": permission.read,
                }  # fmt: skip
                self._of_new_users.append({"user": entry.name, "vhost": vhost, **patterns})

        yield from self._each("users", document.users, take)

    def _user(self, entry: UserEntry, algorithm: str) -> Definition:
        """Return the definition of a user. A user without a password is created, but can't log in with one."""
        if entry.password is not None and entry.password_hash is not None:
            raise bad_request("both_password_and_password_hash_are_provided")
        if entry.tags is None and entry.administrator is None:
            raise bad_request("tags_not_present")
        before = self._broker.definitions.get(USER, entry.name) or {}
        limits = before.get("limits", {}) if entry.limits is None else _table(entry.limits)
        _check(refused_user_limits(limits))
        password_hash = ""
        if entry.password_hash is not None:
            algorithm = entry.hashing_algorithm or algorithm
            if algorithm not in ALGORITHMS:
                raise bad_request(f"unknown hashing_algorithm {algorithm!r}; known algorithms: {', '.join(ALGORITHMS)}")
            b64decode(entry.password_hash, validate=True)
            password_hash = entry.password_hash
        elif entry.password:
            algorithm = self._broker.settings.password_hashing
            password_hash = hash_password(entry.password, self._broker.random_bytes, algorithm)
        return {
            "name": entry.name, "password_hash": password_hash, "hashing_algorithm": algorithm,
            "tags": _tags(entry), "limits": limits,
        }  # fmt: skip

    def _take_vhosts(self, document: Document, user: str) -> Steps[None]:
        def take(entry: VhostEntry) -> None:
            if not entry.name:
                raise bad_request("a virtual host needs a name")
            metadata = entry.metadata if isinstance(entry.metadata, dict) else {}
            description = entry.description if entry.description is not None else metadata.get("description", "")
            tags = entry.tags if entry.tags is not None else metadata.get("tags", [])
            if not isinstance(description, str) or not isinstance(tags, (str, list)):
                raise bad_request("description must be a string, and tags a list")
            self._put(VHOST, {"name": entry.name, "description": description, "tags": _words(tags)})
            if entry.name not in self._vhosts and user in self._users:
                self._put(PERMISSION, {"user": user, "vhost": entry.name, **_ANYTHING})
            self._vhosts.add(entry.name)

        yield from self._each("vhosts", document.vhosts, take)

    def _take_permissions(self, document: Document) -> Steps[None]:
        for definition in self._of_new_users:
            self._permit(PERMISSION, definition)
        usual, topics = document.permissions, document.topic_permissions
        yield from self._each("permissions", usual, lambda entry: self._permit(PERMISSION, _fields(entry)))
        yield from self._each("topic_permissions", topics, lambda entry: self._permit(TOPIC_PERMISSION, _fields(entry)))

    def _permit(self, kind: str, definition: Definition) -> None:
        if definition["user"] not in self._users:
            raise bad_request(f"user {definition['user']!r} does not exist")
        self._known_vhost(definition["vhost"])
        for action in ("configure", "write", "read"):
            if action in definition:
                pattern = str(definition[action])
                reason = refused_pattern(pattern)
                _check(f"invalid regular expression {pattern!r}: {reason}" if reason else "")
        self._put(kind, definition)

    def _take_rules(self, document: Document) -> Steps[None]:
        """Take global parameters, policies and parameters."""
        everywhere = document.global_parameters
        put = functools.partial(self._put, GLOBAL_PARAMETER)
        yield from self._each("global_parameters", everywhere, lambda entry: put(_fields(entry)))
        yield from self._each("policies", document.policies, self._take_policy)
        yield from self._each("parameters", document.parameters, self._take_parameter)

    def _take_policy(self, entry: PolicyEntry) -> None:
        definition = _fields(entry) | {"vhost": self._vhost_of(entry.vhost), "definition": _table(entry.definition)}
        _check(refused_policy(entry.name, entry.pattern, definition["definition"], entry.priority, entry.apply_to))
        self._put(POLICY, definition)

    def _take_parameter(self, entry: ParameterEntry) -> None:
        """Take a parameter; it is ignored if only a plugin of RabbitMQ knows its component."""
        vhost = self._vhost_of(entry.vhost)
        if entry.component not in COMPONENTS:
            text = f"parameter {entry.name!r} of component {entry.component!r} in vhost {vhost!r}"
            self.warnings.append(f"{text}: unknown component, skipped")
            return
        _check(refused_parameter(entry.component, entry.name, entry.value))
        self._put(PARAMETER, _fields(entry) | {"vhost": vhost})

    # -- declarations --------------------------------------------------------------------------------------------------

    def _take_exchange(self, entry: ExchangeEntry) -> None:
        vhost, name = self._vhost_of(entry.vhost), entry.name
        if name == "" or name.startswith(RESERVED):
            return
        method = method_of(
            grammar.EXCHANGE_DECLARE, exchange=name, type=entry.type, durable=entry.durable, internal=entry.internal,
            auto_delete=entry.auto_delete, arguments=encoded_table(_table(entry.arguments)),
        )  # fmt: skip
        if not self._has(vhost, "exchange", name):
            exchange_methods.check_type(method, entry.type, True)
            exchange_methods.check_new(vhost, method, name)
            self._exchanges[vhost, name] = method

    def _take_queue(self, entry: QueueEntry) -> None:
        vhost, name = self._vhost_of(entry.vhost), entry.name
        if name == "":
            raise bad_request("a queue needs a name")
        if name.startswith(RESERVED):
            self.warnings.append(f"queue {name!r} in vhost {vhost!r}: this name is reserved for the broker, skipped")
            return
        method = method_of(
            grammar.QUEUE_DECLARE, queue=name, durable=entry.durable, auto_delete=entry.auto_delete,
            arguments=encoded_table(_table(entry.arguments)),
        )  # fmt: skip
        if not self._has(vhost, "queue", name):
            queue_methods.check_new(vhost, method, name)
            self._queues[vhost, name] = method

    def _take_binding(self, entry: BindingEntry) -> None:
        vhost, arguments = self._vhost_of(entry.vhost), encoded_table(_table(entry.arguments))
        if entry.source == "":
            return  # each queue has its binding to the default exchange anyway
        for kind, name in (("exchange", entry.source), (entry.destination_type, entry.destination)):
            if not self._has(vhost, kind, name):
                text = f"binding from {entry.source!r} to {entry.destination!r} in vhost {vhost!r}"
                self.warnings.append(f"{text}: {kind} {name!r} does not exist, skipped")
                return
        method_of(grammar.QUEUE_BIND, routing_key=entry.routing_key)
        refusal = self._exchange(vhost, entry.source).matcher.refusal(entry.routing_key, arguments)
        if refusal:
            raise bad_request(refusal)
        self._bindings.append((vhost, entry, arguments))

    def _exchange(self, vhost: str, name: str) -> Exchange:
        """Return the existing exchange, or one like the exchange that will be declared."""
        method = self._exchanges.get((vhost, name))
        if method is None:
            return self._there(vhost).exchanges[name]
        kind, arguments = method.text("type"), method.table("arguments")
        return Exchange(name, kind, False, False, False, arguments, self._broker.random_bytes)

    def _has(self, vhost: str, kind: str, name: str) -> bool:
        """Return whether this queue or exchange exists, or will exist."""
        if kind == "queue":
            return (vhost, name) in self._queues or name in self._there(vhost).queues
        return (vhost, name) in self._exchanges or name in self._there(vhost).exchanges

    def _there(self, name: str) -> VHost:
        """Return the virtual host; a new one will have the objects of the broker's empty one."""
        return self._broker.vhosts.get(name, self._broker.nowhere)

    def _vhost_of(self, name: object) -> str:
        if self._vhost is not None:
            return self._vhost
        if name is None:
            raise bad_request("Virtual host does not exist and is not specified in definitions file.")
        return self._known_vhost(name)

    def _known_vhost(self, name: object) -> str:
        if name not in self._vhosts:
            raise bad_request(f'Please create virtual host "{name}" prior to importing definitions.')
        return str(name)

    def _check_limits(self) -> None:
        """Check the present limits, not those of the file, for the queues of the file, as RabbitMQ does."""
        for name, vhost in self._broker.vhosts.items():
            limits = self._broker.definitions.get(PARAMETER, name, VHOST_LIMITS, "limits")
            value = limits["value"] if limits is not None else {}
            most = value.get("max-queues", -1) if isinstance(value, dict) else -1
            count, more = len(vhost.queues), sum(where == name for where, _ in self._queues)
            if isinstance(most, int) and more and count + more > most >= 0:
                raise bad_request(
                    f'Adding {more} queue(s) to virtual host "{name}" would exceed the limit of {most} queue(s).\n\n'
                    f"This virtual host currently has {count} queue(s) defined.\n\nImport aborted!"
                )


def _bind(vhost: VHost, entry: BindingEntry, arguments: bytes, now_us: int) -> None:
    """Add a binding, if both ends exist and the exchange still accepts it."""
    destinations: dict[str, Any] = vhost.queues if entry.destination_type == "queue" else vhost.exchanges
    source, destination = vhost.exchanges.get(entry.source), destinations.get(entry.destination)
    if source is None or destination is None or source.matcher.refusal(entry.routing_key, arguments):
        return
    binding = Binding(source, destination, entry.routing_key, arguments)
    if vhost.bind(binding):
        history = HistoryDelivery(binding)
        while not history.go_on(vhost, now_us):
            pass


def _generations(broker: Broker) -> dict[str, int]:
    """Return numbers that grow when objects are declared or deleted, or when users or permissions change."""
    return {name: int(vhost.generation) for name, vhost in broker.vhosts.items()}


def _fields(entry: Any) -> Definition:
    """Return an entry as a definition, with the file's field names."""
    names = zip(entry.__struct_fields__, entry.__struct_encode_fields__, strict=True)
    return {encoded: getattr(entry, name) for name, encoded in names}


def _table(value: Any) -> dict[str, Value]:
    """Return a table; Erlang writes an empty one as a list. Raises Refused for a non-empty list."""
    if value and isinstance(value, list):
        raise bad_request("expected a table, got a list")
    return dict(value or {})


def _check(reason: str) -> None:
    """Raise Refused if there is a reason."""
    if reason:
        raise bad_request(reason)


def _tags(entry: UserEntry) -> list[Value]:
    if entry.tags is None:
        return ["administrator"] if entry.administrator in (True, "true") else []
    return _words(entry.tags)


def _words(tags: str | list[str]) -> list[Value]:
    words = tags.split(",") if isinstance(tags, str) else tags
    return [str(word).strip() for word in words if str(word).strip()]


def drop_defaults(broker: Broker, document: Document) -> None:
    """Delete users and virtual hosts of a new broker that are not in the file it starts with, as in RabbitMQ."""
    for name in set(broker.vhosts) - {entry.name for entry in document.vhosts}:
        broker.delete_vhost(name)
    for name in set(broker.users.by_name) - {entry.name for entry in document.users}:
        broker.delete_user(name)
