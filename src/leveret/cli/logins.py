"""Settings of the configuration file about who may log in: loopback_users, connection_max, password_hashing."""

from __future__ import annotations

from typing import Final

import click

from leveret.broker import argon2id
from leveret.broker.users import ARGON2ID, SHA256, SHA512

# key of the configuration file -> type
CONFIG: Final[dict[str, type]] = {"loopback_users": list, "connection_max": int, "password_hashing": str}
HASHINGS: Final = {"sha256": SHA256, "sha512": SHA512, "argon2id": ARGON2ID}


def settings(chosen: dict[str, object]) -> dict[str, object]:
    """The arguments for the broker's Settings. click.UsageError for what makes no sense, or needs what is missing."""
    found: dict[str, object] = {}
    users = chosen.get("loopback_users")
    if isinstance(users, list):
        if not all(isinstance(user, str) for user in users):
            raise click.UsageError(f"loopback_users must be a list of names, not {users!r}")
        found["loopback_users"] = tuple(users)
    name = chosen.get("password_hashing")
    if name is not None:
        if name not in HASHINGS:
            raise click.UsageError(f"password_hashing must be one of {', '.join(HASHINGS)}, not {name!r}")
        found["password_hashing"] = HASHINGS[str(name)]
        if name == "argon2id" and not argon2id.is_installed():
            raise click.UsageError('password_hashing = "argon2id" needs argon2-cffi: pip install "leveret[argon2]"')
    return found
