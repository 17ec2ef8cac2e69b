"""What the settings say about who may log in."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

import click

from leveret.broker import argon2id
from leveret.broker.broker import Broker
from leveret.broker.users import ARGON2ID, SHA256, SHA512
from leveret.cli.configuration.chosen import Chosen
from leveret.cli.configuration.settings import SETTINGS

HASHINGS: Final = {"sha256": SHA256, "sha512": SHA512, "argon2id": ARGON2ID}


def settings(chosen: Chosen) -> dict[str, object]:
    """The arguments for the broker's Settings. click.UsageError for what makes no sense, or needs what is missing."""
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
    """What is wrong if others can reach the broker, but none of its users may log in from where they are; else ""."""
    open_hosts = [host for host in hosts if not is_loopback(host)]
    if not open_hosts or set(broker.users.by_name) - set(broker.settings.loopback_users):
        return ""
    return (
        f"the broker listens on {', '.join(open_hosts)}, but no user can log in from another machine: guest is "
        "limited to this one. Set LEVERET_DEFAULT_USER and LEVERET_DEFAULT_PASS for a new data directory, or give "
        "it --definitions, or add a user with `leveret ctl add_user`"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
