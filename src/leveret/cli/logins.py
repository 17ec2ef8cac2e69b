"""Settings that concern logins."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

import click

from leveret.broker.access import argon2id
from leveret.broker.access.users import ARGON2ID, SHA256, SHA512
from leveret.broker.broker import Broker
from leveret.cli.configuration.chosen import Chosen
from leveret.cli.configuration.settings import SETTINGS

HASHINGS: Final = {"sha256": SHA256, "sha512": SHA512, "argon2id": ARGON2ID}


def settings(chosen: Chosen) -> dict[str, object]:
    """Return fields for the broker's Settings. Raises click.UsageError if they contradict or need more packages."""
    hashing = chosen["password_hashing"]
    if hashing == "argon2id" and not argon2id.is_installed():
        raise click.UsageError('password_hashing = "argon2id" needs argon2-cffi: pip install "leveret[argon2]"')
    if chosen["default_user"] != SETTINGS["default_user"].default and not chosen.is_given("default_pass"):
        raise click.UsageError(f"default_user needs a password: default_pass, or ${SETTINGS['default_pass'].variable}")
    return {
        "loopback_users": tuple(chosen["loopback_users"]), "password_hashing": HASHINGS[hashing],
        "default_user": chosen["default_user"], "default_pass": chosen["default_pass"],
    }  # fmt: skip


def nobody_from_afar(broker: Broker, hosts: list[str]) -> str:
    """Return a warning if the broker listens beyond this machine but no user may log in from another one; else ""."""
    open_hosts = [host for host in hosts if not is_loopback(host)]
    if not open_hosts or set(broker.users.by_name) - set(broker.settings.loopback_users):
        return ""
    return (
        f"the broker listens on {', '.join(open_hosts)}, but no user can log in from another machine: guest is "
        "limited to this one. Set LEVERET_DEFAULT_USER and LEVERET_DEFAULT_PASS for a new data directory, or give "
        "it --definitions, or add a user with `leveret ctl add_user`"
    )


def is_loopback(host: str) -> bool:
    """Whether the address is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
