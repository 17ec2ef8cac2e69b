"""Argon2id (RFC 9106) for passwords, by argon2-cffi, which is needed only if this hash is configured.

It takes tens of milliseconds and of megabytes by design: call it on a thread.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

SALT_OCTETS: Final = 16
# for users without such a hash: matches no password, and takes as long to check as a real one
NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$bGV2ZXJldCdzIG5vYm9keQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


def is_installed() -> bool:
    """Return whether argon2-cffi is installed."""
    return importlib.util.find_spec("argon2") is not None


def _argon2(module: str) -> Any:
    """Import a module of argon2-cffi. Not by a statement: the core is also compiled where it is not installed."""
    return importlib.import_module(f"argon2.{module}")


def hashed(password: bytes, salt: bytes) -> str:
    """Return the encoded hash, with its salt and its costs: the second recommendation of RFC 9106 (low memory)."""
    low_level, costs = _argon2("low_level"), _argon2("profiles").RFC_9106_LOW_MEMORY
    encoded: bytes = low_level.hash_secret(
        password, salt, costs.time_cost, costs.memory_cost, costs.parallelism, costs.hash_len, low_level.Type.ID
    )
    return encoded.decode()


def accepts(encoded: str, password: bytes) -> bool:
    """Return whether the password fits an encoded hash; False also for an invalid hash, or without argon2-cffi."""
    if not is_installed():
        return False
    low_level, errors = _argon2("low_level"), _argon2("exceptions")
    try:
        return bool(low_level.verify_secret(encoded.encode("ascii", "replace"), password, low_level.Type.ID))
    except (errors.VerificationError, errors.InvalidHash):
        return False
