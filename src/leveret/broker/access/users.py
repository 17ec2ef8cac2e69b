"""Users: their passwords, tags, limits and permissions (RabbitMQ, Access Control)."""

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
ARGON2ID: Final = "leveret_password_hashing_argon2id"  # ours: RabbitMQ does not know it
# their names in hashlib
ALGORITHMS: Final = {SHA256: "sha256", SHA512: "sha512", MD5: "md5", ARGON2ID: ""}
SALT_OCTETS: Final = 4
CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
IMPERSONATOR: Final = "impersonator"  # the tag of users who may publish in the name of others


def hash_password(password: str, random_bytes: RandomBytes, algorithm: str = SHA256) -> str:
    """Return the password_hash of a definition: salt and digest, in base64. Raises KeyError for an unknown algorithm.

    Argon2id takes long; its hash is the encoded form of the reference implementation, in base64 once more.
    """
    octets = password.encode("utf-8", "surrogateescape")
    if algorithm == ARGON2ID:
        return b64encode(argon2id.hashed(octets, random_bytes(argon2id.SALT_OCTETS)).encode()).decode()
    salt = random_bytes(SALT_OCTETS)
    return b64encode(salt + _digest(algorithm, salt, octets)).decode()


def _digest(algorithm: str, salt: bytes, password: bytes) -> bytes:
    return hashlib.new(ALGORITHMS[algorithm], salt + password).digest()


class User:
    """A user, from its definition and those of its permissions."""

    def __init__(self, definition: Definition) -> None:
        self.name = str(definition["name"])
        # salt and digest, b"" = no password is accepted
        self.password_hash = b64decode(str(definition.get("password_hash", "")))
        self.algorithm = str(definition.get("hashing_algorithm", SHA256))
        tags = definition.get("tags", [])
        self.tags: list[str] = [str(tag) for tag in tags] if isinstance(tags, list) else []
        limits = definition.get("limits", {})
        self.limits: dict[str, int] = {}
        if isinstance(limits, dict):
            self.limits = {name: limit for name, limit in limits.items() if isinstance(limit, int)}
        self.permissions: dict[str, dict[str, Pattern]] = {}  # by virtual host: patterns of names, by action
        # by virtual host and exchange: patterns of routing keys, by action
        self.topic_permissions: dict[tuple[str, str], dict[str, Pattern]] = {}

    def accepts(self, password: str) -> bool:
        """Whether this is the password. As in RabbitMQ, an empty one is never accepted."""
        if not password or not self.has_password:
            return False
        octets = password.encode("utf-8", "surrogateescape")
        if self.is_slow:
            return argon2id.accepts(self.password_hash.decode("ascii", "replace"), octets)
        salt, digest = self.password_hash[:SALT_OCTETS], self.password_hash[SALT_OCTETS:]
        return hmac.compare_digest(_digest(self.algorithm, salt, octets), digest)

    @property
    def has_password(self) -> bool:
        """Whether there is a password that is accepted."""
        return len(self.password_hash) > 0 and self.algorithm in ALGORITHMS

    @property
    def is_slow(self) -> bool:
        """Whether `accepts` takes so long that it should run on a thread."""
        return self.algorithm == ARGON2ID

    def may(self, action: str, vhost: str, name: str) -> bool:
        """Whether the user may configure, write or read objects of this name."""
        patterns = self.permissions.get(vhost)
        return patterns is not None and patterns[action].matches(name)


class Users:
    """All users by name, updated by the definitions.

    A wrong password costs the same hashing for every user name: if some passwords take long, it takes as long as those.
    A right one with a quick hash may be quick, because whoever knows it learns nothing from that.
    """

    def __init__(self, hashing: str = SHA256) -> None:
        self._hashes_slowly = hashing == ARGON2ID  # new passwords are hashed with Argon2id
        self._slow_count = 0
        self.by_name: dict[str, User] = {}
        self.generation = 1  # grows with each change

    @property
    def is_slow(self) -> bool:
        """Whether some passwords take long: new ones, or those of a user."""
        return self._hashes_slowly or self._slow_count > 0

    def accepts(self, name: str, password: str) -> bool:
        """Whether this user exists and has this password; may take long if is_slow."""
        answer = self.quick_answer(name, password)
        return self.slow(name).accepts(password) if answer is None else answer

    def quick_answer(self, name: str, password: str) -> bool | None:
        """Answer like `accepts` if that is quick; None: ask the user that `slow` returns, on a thread."""
        user = self.by_name.get(name)
        if user is None or not user.has_password:
            user = _NOBODY
        if user.is_slow:
            return None
        is_right = user.accepts(password)
        return None if self.is_slow and not is_right else is_right

    def slow(self, name: str) -> User:
        """Return the user, or one with an unknown password if this user's is quick to check or does not exist."""
        user = self.by_name.get(name)
        return user if user is not None and user.has_password and user.is_slow else _SLOW_NOBODY

    def has_tag(self, name: str, tag: str) -> bool:
        """Whether this user exists and has this tag."""
        user = self.by_name.get(name)
        return user is not None and tag in user.tags

    def defined(self, kind: str, key: Key, definition: Definition | None) -> None:
        """Apply a new or changed definition, or with None a removed one."""
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


# stand-ins for users that do not exist or have no password
_NOBODY: Final = User({"name": "", "password_hash": b64encode(bytes(SALT_OCTETS + 32)).decode()})
_SLOW_NOBODY: Final = User(
    {"name": "", "password_hash": b64encode(argon2id.NOBODY.encode()).decode(), "hashing_algorithm": ARGON2ID}
)


def _patterns(definition: Definition, actions: tuple[str, ...]) -> dict[str, Pattern]:
    return {action: Pattern(str(definition[action])) for action in actions}
