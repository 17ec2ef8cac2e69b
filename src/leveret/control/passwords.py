"""Password checks outside of AMQP: slow hashes run on a thread, and logins with many failures have to wait."""

from __future__ import annotations

from ipaddress import ip_address

from leveret.broker.access.users import ARGON2ID, User, hash_password
from leveret.broker.storage.definitions import Definition
from leveret.control.node import BrokerNode
from leveret.control.refusal import NOT_AUTHORISED, Refused
from leveret.wire.errors import quoted


async def authenticated(
    node: BrokerNode, name: str, password: str, address: str, protocol: str, is_direct: bool = True, due_us: int = 0
) -> User:
    """Return the user if the password is right.

    Raises Refused if it is wrong, or if the user may log in from this machine only and does not: `address` is remote,
    or a proxy is in between (not `is_direct`). Raises Held if the login has to wait (`Logins.check`); pass its due_us
    when the same attempt is repeated.

    Attempts are throttled by address and user, except with the address "".
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
            why = "wrong credentials" if is_right is not None else "not checked, because too many logins failed"
            broker.on_event(f"{address}: user {quoted(name)} refused by {protocol}: {why}")
        raise Refused(NOT_AUTHORISED, f"user '{name}' - invalid credentials")
    if not is_here:
        raise Refused(NOT_AUTHORISED, "User can only log in via localhost")
    return user


def _is_loopback(address: str) -> bool:
    """Return whether the address is this machine; "" is the control socket and counts as local."""
    try:
        return not address or ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def password_fields(node: BrokerNode, password: str) -> Definition:
    """Return the fields of a user's definition for this password."""
    algorithm = node.broker.settings.password_hashing
    random_bytes = node.broker.random_bytes
    if algorithm == ARGON2ID:
        hashed = await node.host.logins.on_thread(hash_password, password, random_bytes, algorithm)
    else:
        hashed = hash_password(password, random_bytes, algorithm)
    return {"password_hash": hashed, "hashing_algorithm": algorithm}
