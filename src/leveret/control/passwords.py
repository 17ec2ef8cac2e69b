"""Passwords where nobody may be kept waiting: what takes long is done on a thread, and who failed often waits first."""

from __future__ import annotations

from ipaddress import ip_address

from leveret.broker.definitions import Definition
from leveret.broker.users import ARGON2ID, User, hash_password
from leveret.control.node import Node
from leveret.control.refusal import NOT_AUTHORISED, Refused
from leveret.wire.errors import quoted


async def authenticated(
    node: Node, name: str, password: str, address: str, protocol: str, is_direct: bool = True, due_us: int = 0
) -> User:
    """The user, if this is the password. Refused if not, or if this user may not come from that address, or
    may from this machine only and somebody else stands between (is_direct). Held if it is too early for an answer
    (`Logins.check`); due_us: of the Held of the same attempt before.

    Attempts are counted, and wait, by address and user; those of nobody's address ("") are neither.
    """
    broker = node.broker
    is_right = await node.host.logins.check(address, name, password, due_us)
    user = broker.users.by_name.get(name)
    is_here = name not in broker.settings.loopback_users or (is_direct and _is_loopback(address))
    if address and is_right is None:
        broker.login_throttle.count(protocol, False)
    elif address:
        broker.login_throttle.done(address, name, protocol, bool(is_right) and is_here, node.host.now_us())
    if not is_right or user is None:
        if address:
            why = "wrong credentials" if is_right is not None else "unseen, as too many logins have failed"
            broker.on_event(f"{address}: user {quoted(name)} refused by {protocol}: {why}")
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
