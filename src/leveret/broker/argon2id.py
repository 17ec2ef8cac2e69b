"""Argon2id (RFC 9106) for passwords, by argon2-cffi, which is needed only where it is chosen.

It takes tens of milliseconds and of megabytes on purpose: call it on a thread.
"""

from __future__ import annotations

import importlib.util
from typing import Final

SALT_OCTETS: Final = 16
# nobody's password: who asks for a user that does not exist waits for as long as for another one
NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$bGV2ZXJldCdzIG5vYm9keQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


def is_installed() -> bool:
    """Whether argon2-cffi is."""
    return importlib.util.find_spec("argon2") is not None


def hashed(password: bytes, salt: bytes) -> str:
    """The hash with its salt and its costs, those that RFC 9106 recommends second, as the reference encodes them."""
    from argon2.low_level import Type, hash_secret
    from argon2.profiles import RFC_9106_LOW_MEMORY as COSTS

    encoded = hash_secret(
        password, salt, COSTS.time_cost, COSTS.memory_cost, COSTS.parallelism, COSTS.hash_len, Type.ID
    )
    return encoded.decode()


def accepts(encoded: str, password: bytes) -> bool:
    """Whether this is the password of an encoded hash; no for what is no hash, or without argon2-cffi."""
    if not is_installed():
        return False
    from argon2.exceptions import InvalidHash, VerificationError
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(encoded.encode("ascii", "replace"), password, Type.ID)
    except (VerificationError, InvalidHash):
        return False
