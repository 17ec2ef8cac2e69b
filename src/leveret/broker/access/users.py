"""Users: who they are, and what they may do where (RabbitMQ, Access Control)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final

from leveret.broker.access import argon2id
from leveret.broker.access.pattern import Pattern
from leveret.broker.names import RandomBytes
from leveret.broker.storage.definitions import PERMISSION, TOPIC_PERMISSION, USER, Definition, Key

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
MD5: Final = "rabbit_password_hashing_md5"
ARGON2ID: Final = "leveret_password_hashing_argon2id"  # ours: no RabbitMQ knows it
# what hashlib calls them
ALGORITHMS: Final = {SHA256: "sha256", SHA512: "sha512", MD5: "md5", ARGON2ID: ""}
SALT_OCTETS: Final = 4
CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
IMPERSONATOR: Final = "impersonator"  # the tag of users who may publish in the name of others


def hash_password(password: str, random_bytes: RandomBytes, algorithm: str = SHA256) -> str:
    """The password_hash of a definition: salt and digest, in base64. KeyError for an unknown algorithm.

    Argon2id takes long; its hash is what its reference encodes, in base64 once more.
    """
    octets = password.encode("utf-8", "surrogateescape")
    if algorithm == ARGON2ID:
        return b64encode(argon2id.hashed(octets, random_bytes(argon2id.SALT_OCTETS)).encode()).decode()
    salt = random_bytes(SALT_OCTETS)
    return b64encode(salt + _digest(algorithm, salt, octets)).decode()


def _digest(algorithm: str, salt: bytes, password: bytes) -> bytes:
    return hashlib.new(ALGORITHMS[algorithm], salt + password).digest()


class User:
    """password_hash: salt and digest, b"" = no password will do. permissions: of each virtual host that it may enter,
    patterns of names by what may be done; topic_permissions: of virtual host and exchange, patterns of routing keys."""

    def __init__(self, definition: Definition) -> None:
        self.name = str(definition["name"])
        self.password_hash = b64decode(str(definition.get("password_hash", "")))
        self.algorithm = str(definition.get("hashing_algorithm", SHA256))
        tags = definition.get("tags", [])
        self.tags: list[str] = [str(tag) for tag in tags] if isinstance(tags, list) else []
        limits = definition.get("limits", {})
        self.limits: dict[str, int] = {}
        if isinstance(limits, dict):
            self.limits = {name: limit for name, limit in limits.items() if isinstance(limit, int)}
        self.permissions: dict[str, dict[str, Pattern]] = {}
        self.topic_permissions: dict[tuple[str, str], dict[str, Pattern]] = {}

    def accepts(self, password: str) -> bool:
        """Whether this is the password. RabbitMQ lets nobody in with an empty one."""
        if not password or not self.has_password:
            return False
        octets = password.encode("utf-8", "surrogateescape")
        if self.is_slow:
            return argon2id.accepts(self.password_hash.decode("ascii", "replace"), octets)
        salt, digest = self.password_hash[:SALT_OCTETS], self.password_hash[SALT_OCTETS:]
        return hmac.compare_digest(_digest(self.algorithm, salt, octets), digest)

    @property
    def has_password(self) -> bool:
        """Whether any password will do."""
        return len(self.password_hash) > 0 and self.algorithm in ALGORITHMS

    @property
    def is_slow(self) -> bool:
        """Whether `accepts` takes so long that it belongs on a thread."""
        return self.algorithm == ARGON2ID

    def may(self, action: str, vhost: str, name: str) -> bool:
        """Whether the user may configure, write or read what has this name."""
        patterns = self.permissions.get(vhost)
        return patterns is not None and patterns[action].matches(name)


class Users:
    """All users by name, kept true by the definitions. generation: grows with each change.

    hashing: the algorithm of new passwords.

    A wrong password takes the same hashes whoever it is said to be of: where some passwords take long, it takes one
    that does. A right one of a quick hash need not, as who knows it learns nothing.
    """

    def __init__(self, hashing: str = SHA256) -> None:
        self._hashes_slowly = hashing == ARGON2ID
        self._slow_count = 0
        self.by_name: dict[str, User] = {}
        self.generation = 1

    @property
    def is_slow(self) -> bool:
        """Whether some passwords take long: those that are set from now on, or those of a user."""
        return self._hashes_slowly or self._slow_count > 0

    def accepts(self, name: str, password: str) -> bool:
        """Whether there is this user, with this password; may take long if is_slow."""
        answer = self.quick_answer(name, password)
        return self.slow(name).accepts(password) if answer is None else answer

    def quick_answer(self, name: str, password: str) -> bool | None:
        """The same, if that takes a moment; None: the answer is that of `slow`, which belongs on a thread."""
        user = self.by_name.get(name)
        if user is None or not user.has_password:
            user = _NOBODY
        if user.is_slow:
            return None
        is_right = user.accepts(password)
        return None if self.is_slow and not is_right else is_right

    def slow(self, name: str) -> User:
        """The user, if that password takes long; or one with a password that nobody knows, which takes as long."""
        user = self.by_name.get(name)
        return user if user is not None and user.has_password and user.is_slow else _SLOW_NOBODY

    def has_tag(self, name: str, tag: str) -> bool:
        """Whether there is this user, with this tag."""
        user = self.by_name.get(name)
        return user is not None and tag in user.tags

    def defined(self, kind: str, key: Key, definition: Definition | None) -> None:
        """A definition came or went."""
        if kind == USER:
            self._set_user(key[0], definition)
        elif kind == PERMISSION:
            self._permit(self.by_name.get(key[0]), key, definition)
        elif kind == TOPIC_PERMISSION:
            self._permit_topics(self.by_name.get(key[0]), key, definition)
        else:
            return
        self.generation += 1

    def _set_user(self, name: str, definition: Definition | None) -> None:
        before = self.by_name.pop(name, None)
        if before is not None and before.is_slow:
            self._slow_count -= 1
        if definition is None:
            return
        user = User(definition)
        if user.is_slow:
            self._slow_count += 1
        if before is not None:
            user.permissions, user.topic_permissions = before.permissions, before.topic_permissions
        self.by_name[name] = user

    def _permit(self, user: User | None, key: Key, definition: Definition | None) -> None:
        if user is None:
            return
        user.permissions.pop(key[1], None)
        if definition is not None:
            user.permissions[key[1]] = _patterns(definition, (CONFIGURE, WRITE, READ))

    def _permit_topics(self, user: User | None, key: Key, definition: Definition | None) -> None:
        if user is None:
            return
        user.topic_permissions.pop((key[1], key[2]), None)
        if definition is not None:
            user.topic_permissions[(key[1], key[2])] = _patterns(definition, (WRITE, READ))


# the password of users that do not exist or have none
_NOBODY: Final = User({"name": "", "password_hash": b64encode(bytes(SALT_OCTETS + 32)).decode()})
_SLOW_NOBODY: Final = User(
    {"name": "", "password_hash": b64encode(argon2id.NOBODY.encode()).decode(), "hashing_algorithm": ARGON2ID}
)


def _patterns(definition: Definition, actions: tuple[str, ...]) -> dict[str, Pattern]:
    return {action: Pattern(str(definition[action])) for action in actions}
