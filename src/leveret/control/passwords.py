"""Passwords where nobody may be kept waiting: what takes long is done on a thread, and who failed often waits first."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

from leveret.broker.definitions import Definition
from leveret.broker.users import ARGON2ID, User, hash_password
from leveret.control.node import Node
from leveret.control.refusal import NOT_AUTHORISED, Refused


async def authenticated(
    node: Node, name: str, password: str, address: str, protocol: str, is_direct: bool = True
) -> User:
    """The user, if this is the password. Refused if not, or if this user may not come from that address, or
    may from this machine only and somebody else stands between (is_direct).

    Attempts are counted, and wait, by address; those of nobody's ("") are neither.
    """
    broker = node.broker
    wait_us = broker.attempts.wait_us(address, node.host.now_us()) if address else 0
    if wait_us > 0:
        await asyncio.sleep(wait_us / 1e6)
    user = broker.users.candidate(name)
    is_right = False
    if wait_us >= 0:
        is_right = await node.host.logins.on_thread(user.accepts, password) if user.is_slow else user.accepts(password)
    is_right = is_right and broker.users.by_name.get(name) is user
    is_here = name not in broker.settings.loopback_users or (is_direct and _is_loopback(address))
    if address:
        broker.attempts.done(address, protocol, is_right and is_here, node.host.now_us())
    if not is_right:
        if address:
            broker.on_event(f"{address}: user '{name}' refused by {protocol}: wrong credentials")
        raise Refused(NOT_AUTHORISED, f"user '{name}' - invalid credentials")
    if not is_here:
        raise Refused(NOT_AUTHORISED, "User can only log in via localhost")
    return user


def _is_loopback(address: str) -> bool:
    """Whether this is the machine itself; "": whoever may open the socket is."""
    try:
        return not address or ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def password_fields(node: Node, password: str) -> Definition:
    """The fields of a user's definition for this password."""
    algorithm = node.broker.settings.password_hashing
    random_bytes = node.broker.random_bytes
    if algorithm == ARGON2ID:
        hashed = await node.host.logins.on_thread(hash_password, password, random_bytes, algorithm)
    else:
        hashed = hash_password(password, random_bytes, algorithm)
    return {"password_hash": hashed, "hashing_algorithm": algorithm}
