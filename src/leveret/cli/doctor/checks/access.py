"""Checks of users: default and weak passwords, excessive and missing permissions, unencrypted connections."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from leveret.broker.access.users import User
from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.observation import Observation, Row
from leveret.cli.terminal import counted

ALL: Final = ".*"
ADMINISTRATOR: Final = "administrator"


def default_guest(seen: Observation) -> Iterator[Hit]:
    guest = next((user for user in seen.rows("users") if user["name"] == "guest"), None)
    if guest is None or not _accepts(guest, "guest"):
        return
    remote = [
        row for row in seen.rows("connections") if row.get("user") == "guest" and _is_remote(row.get("peer_host"))
    ]
    open_to = [row for row in seen.overview.get("listeners", []) if not _is_loopback(str(row.get("ip_address", "")))]
    tags = ", ".join(_tags(guest)) or "no tag"
    if remote:
        yield Hit(
            "user 'guest'",
            f"password 'guest', {tags}; {counted(len(remote), 'connection')} from other machines, such as "
            f"{remote[0]['peer_host']}",
            severity=Severity.ERROR,
        )
    elif open_to:
        where = ", ".join(sorted({f"{row.get('ip_address')}:{row.get('port')}" for row in open_to}))
        yield Hit(
            "user 'guest'",
            f"password 'guest', {tags}, and the broker listens on {where}; only loopback_users prevents remote logins",
        )


def weak_password(seen: Observation) -> Iterator[Hit]:
    for user in seen.rows("users"):
        if user["name"] != "guest" and _accepts(user, user["name"]):
            yield Hit(f"user {user['name']!r}", "its password equals its name", {"NAME": user["name"]})


def no_permissions(seen: Observation) -> Iterator[Hit]:
    entitled = {row["user"] for row in seen.rows("permissions")}
    for user in seen.rows("users"):
        if user["name"] not in entitled:
            tags = _tags(user)
            said = f"tags {', '.join(tags)}" if tags else "no tags"
            yield Hit(f"user {user['name']!r}", f"no permissions in any virtual host, {said}", {"NAME": user["name"]})


def working_administrators(seen: Observation) -> Iterator[Hit]:
    administrators = {user["name"] for user in seen.rows("users") if ADMINISTRATOR in _tags(user)}
    for name in sorted(administrators):
        connections = [row for row in seen.rows("connections") if row.get("user") == name]
        if connections:
            yield Hit(
                f"user {name!r}",
                f"{counted(len(connections), 'AMQP connection')} of an administrator, "
                f"such as {connections[0]['name']!r}",
                {"NAME": name},
            )


def everything_allowed(seen: Observation) -> Iterator[Hit]:
    administrators = {user["name"] for user in seen.rows("users") if ADMINISTRATOR in _tags(user)}
    vhosts = len(seen.rows("vhosts"))
    if vhosts < 2:
        return  # a single virtual host leaves nothing to separate
    for user in seen.rows("users"):
        mine = [row for row in seen.rows("permissions") if row["user"] == user["name"]]
        wide = [row for row in mine if row["configure"] == row["write"] == row["read"] == ALL]
        if user["name"] not in administrators and len(wide) == vhosts:
            yield Hit(
                f"user {user['name']!r}",
                f"may configure, write and read everything in all {vhosts} virtual hosts",
                {"NAME": user["name"]},
            )


def in_the_clear(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("connections"):
        if row.get("ssl") is False and _is_remote(row.get("peer_host")):
            yield Hit(f"connection {row['name']!r}", f"user {row.get('user')!r} from {row['peer_host']} without TLS")


def _accepts(user: Row, password: str) -> bool:
    """Whether this is the user's password. Deliberately slow hashes are not tried."""
    try:
        account = User({name: user[name] for name in ("name", "password_hash", "hashing_algorithm") if name in user})
    except ValueError:
        return False
    return not account.is_slow and account.accepts(password)


def _tags(user: Row) -> list[str]:
    """Return a user's tags; RabbitMQ before 3.9 has them in one text."""
    tags = user.get("tags", [])
    return [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else list(tags)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_remote(address: object) -> bool:
    text = str(address or "")
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return not (mapped or found).is_loopback


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "default-guest", W, "The user guest still has the password guest",
        "The password is publicly known, and guest is an administrator. Only loopback_users limits it to the "
        "broker's own machine, and connections through a proxy or a container's port count as local.",
        "Create your own administrator, then `ctl delete_user guest`",
        default_guest, ("users", "overview"),
    ),
    Check(
        "weak-password", E, "Users whose password equals their name",
        "It is the first password that an attacker tries.",
        "`ctl change_password NAME NEW-PASSWORD`",
        weak_password, ("users",),
    ),
    Check(
        "user-without-permissions", H, "Users without access to any virtual host",
        "They cannot use AMQP. Either the user is obsolete, or its permissions were forgotten.",
        "`ctl set_permissions -p VHOST NAME '^app-' '^app-' '^app-'`, or `ctl delete_user NAME`",
        no_permissions, ("users", "permissions"),
    ),
    Check(
        "administrator-at-work", H, "Applications that log in as an administrator",
        "Anyone who reads the password in the application's configuration can delete users and virtual hosts.",
        "Give each application a user without tags, with permissions for its own names: `ctl add_user app PASSWORD`, "
        "`ctl set_permissions -p / app '^app-' '^app-' '^app-'`",
        working_administrators, ("users", "connections", "statistics"),
    ),
    Check(
        "permissions-everywhere", H, "Users with full permissions in all virtual hosts",
        "Virtual hosts isolate applications from each other; this user defeats that.",
        "Remove permissions that it does not need: `ctl clear_permissions -p VHOST NAME`",
        everything_allowed, ("users", "permissions", "vhosts"),
    ),
    Check(
        "no-tls", H, "Connections from other machines without TLS",
        "Passwords and messages cross the network unencrypted.",
        "Enable TLS (docs/guides/tls.md; RabbitMQ: listeners.ssl) and use amqps:// in the clients",
        in_the_clear, ("connections", "statistics"),
    ),
)  # fmt: skip
