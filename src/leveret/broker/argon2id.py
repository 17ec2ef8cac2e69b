"""Argon2id (RFC 9106) for passwords, by argon2-cffi, which is needed only where it is chosen.

It takes tens of milliseconds and of megabytes on purpose: call it on a thread.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

SALT_OCTETS: Final = 16
# nobody's password, for users that have none of this kind, so that a wrong one takes as long as for those who have
NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$bGV2ZXJldCdzIG5vYm9keQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


def is_installed() -> bool:
    """Whether argon2-cffi is."""
    return importlib.util.find_spec("argon2") is not None


def _argon2(module: str) -> Any:
    """A module of argon2-cffi. No import statement: the core is compiled where it is not installed, too."""
    return importlib.import_module(f"argon2.{module}")


def hashed(password: bytes, salt: bytes) -> str:
    """The hash with its salt and its costs, those that RFC 9106 recommends second, as the reference encodes them."""
    low_level, costs = _argon2("low_level"), _argon2("profiles").RFC_9106_LOW_MEMORY
    encoded: bytes = low_level.hash_secret(
        password, salt, costs.time_cost, costs.memory_cost, costs.parallelism, costs.hash_len, low_level.Type.ID
    )
    return encoded.decode()


def accepts(encoded: str, password: bytes) -> bool:
    """Whether this is the password of an encoded hash; no for what is no hash, or without argon2-cffi."""
    if not is_installed():
        return False
    low_level, errors = _argon2("low_level"), _argon2("exceptions")
    try:
        return bool(low_level.verify_secret(encoded.encode("ascii", "replace"), password, low_level.Type.ID))
    except (errors.VerificationError, errors.InvalidHash):
        return False
