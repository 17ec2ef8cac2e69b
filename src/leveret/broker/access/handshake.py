"""connection.*: login, limits, virtual host (AMQP 0-9-1, section 2.2.4; texts as RabbitMQ words them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.access.login import Login
from leveret.broker.methods.queue_methods import fail
from leveret.session import lifecycle
from leveret.session.login import EXTERNAL, MECHANISMS, parse_response, refused
from leveret.wire import grammar
from leveret.wire.errors import NOT_ALLOWED, ProtocolError, quoted
from leveret.wire.frames import FRAME_MIN_SIZE
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.access.security import Security
    from leveret.broker.peer import Peer

PROTOCOL: Final = "amqp091"  # the protocol under which login attempts are counted


def unknown_protocol(peer: Peer, data: bytes) -> None:
    """Log and count a client that does not speak AMQP 0-9-1."""
    what = (
        "TLS, but this port does not use TLS"
        if data[:2] == b"\x16\x03"
        else (f"a protocol other than AMQP 0-9-1: {data[:8]!r}")
    )
    peer.broker.refused("protocol")
    peer.broker.tell(peer, f"{peer.address}: refused: the client speaks {what}")


def start(peer: Peer) -> None:
    """Send connection.start."""
    peer.send_ahead(peer.broker.greeting(" ".join((*MECHANISMS, EXTERNAL) if _is_named(peer) else MECHANISMS)))


def start_ok(peer: Peer, method: Method) -> None:
    """connection.start-ok: check the login, or let it wait for its turn."""
    peer.client_properties = method.table("client_properties")
    capabilities = peer.client_properties.get("capabilities")
    if isinstance(capabilities, dict):
        peer.hears_cancel = capabilities.get("consumer_cancel_notify") is True
        peer.hears_blocked = capabilities.get("connection.blocked") is True
        peer.hears_refusal = capabilities.get("authentication_failure_close") is True
    mechanism = method.text("mechanism")
    if mechanism == EXTERNAL and peer.security is not None:
        _logged_in(peer, mechanism, _named_by_certificate(peer, peer.security))
        return
    user, password = parse_response(mechanism, method.data("response"))
    broker = peer.broker
    login = Login(mechanism, user, password)
    if broker.users.is_slow:
        _hold(peer, login)  # the login throttle is asked when this one's turn comes, since others are ahead
        return
    wait_us = broker.login_throttle.wait_us(peer.host, user, int(peer.now_us))
    if wait_us > 0:
        login.due_us = int(peer.now_us) + wait_us
        _hold(peer, login)
    elif wait_us < 0:
        decide(peer, login, None)
    else:
        decide(peer, login, broker.users.accepts(user, password))


def _hold(peer: Peer, login: Login) -> None:
    peer.login = login
    peer.is_held = True
    peer.broker.on_login(peer)


def resume(peer: Peer, is_right: bool | None, now_us: int) -> None:
    """Complete a login that waited, with `decide`. Does nothing if the connection is gone."""
    login = peer.login
    if login is None or peer.state != lifecycle.TUNING:
        return
    peer.login = None
    peer.is_held = False
    peer.now_us = now_us
    try:
        decide(peer, login, is_right)
    except ProtocolError as error:
        peer.close(error.code, error.text)


def decide(peer: Peer, login: Login, is_right: bool | None) -> None:
    """Accept or refuse a login. is_right: whether the password is; None = unchecked, after too many failures."""
    broker = peer.broker
    if is_right is None:
        told = (
            f"user {quoted(login.user)} refused without a check of the password: too many failed logins of this "
            "user or from this address"
        )
        broker.tell(peer, f"{peer.address}: {told}")
        broker.refused("login")
        broker.login_throttle.count(PROTOCOL, False)
        raise refused(login.mechanism)
    if not is_right or login.user not in broker.users.by_name:
        broker.tell(peer, f"{peer.address}: user {quoted(login.user)} refused: wrong credentials")
        _count(peer, login.user, False)
        raise refused(login.mechanism)
    _logged_in(peer, login.mechanism, login.user)


def _count(peer: Peer, user: str, is_right: bool) -> None:
    if not is_right:
        peer.broker.refused("login")
    peer.broker.login_throttle.done(peer.host, user, PROTOCOL, is_right, int(peer.now_us))


def _logged_in(peer: Peer, mechanism: str, user: str) -> None:
    """Continue with connection.tune, unless this user may not log in from that address."""
    settings = peer.broker.settings
    if user in settings.loopback_users and not peer.is_loopback:
        peer.broker.tell(peer, f"{peer.address}: user {quoted(user)} can only connect via localhost")
        _count(peer, user, False)
        raise refused(mechanism)
    _count(peer, user, True)
    peer.user = user
    peer.mechanism = mechanism
    peer.send(
        0,
        grammar.CONNECTION_TUNE,
        channel_max=settings.channel_max,
        frame_max=settings.frame_max,
        heartbeat=settings.heartbeat_s,
    )


def _is_named(peer: Peer) -> bool:
    """Return whether a verified certificate names an existing user.

    RabbitMQ, where EXTERNAL is enabled, offers it to all TLS clients. Some clients use it whenever it is offered,
    whatever user and password they were given, so it is offered here only where it works.
    """
    return peer.security is not None and peer.security.login in peer.broker.users.by_name


def _named_by_certificate(peer: Peer, security: Security) -> str:
    """Return the user of an EXTERNAL login, from its certificate; the response is ignored, as in RabbitMQ."""
    user = security.login
    if user in peer.broker.users.by_name:
        return user
    reason = f"user {quoted(user)} - invalid credentials" if user else "no name found"
    if security.subject is None:
        reason = "connection peer presented no TLS (x.509) certificate"
    peer.broker.tell(peer, f"{peer.address}: EXTERNAL login refused: {reason}")
    peer.broker.refused("login")
    # no password was guessed, so the throttle does not count a failure
    peer.broker.login_throttle.count(PROTOCOL, False)
    raise refused(EXTERNAL)


def tune_ok(peer: Peer, method: Method) -> None:
    """connection.tune-ok: set the client's limits, which must not exceed the offer; 0 (no limit) is refused."""
    settings = peer.broker.settings
    peer.channel_max = _limit(method, "channel_max", 0, settings.channel_max)
    frame_max = _limit(method, "frame_max", FRAME_MIN_SIZE, settings.frame_max)
    # no connection has frames larger than settings.frame_max, so only a smaller limit requires splitting
    peer.must_cut = frame_max < settings.frame_max
    peer.frame_max = frame_max
    peer.heartbeat_s = method.number("heartbeat")


def _limit(method: Method, name: str, smallest: int, offered: int) -> int:
    value = method.number(name)
    if value == 0 or value > offered or value < smallest:
        bound = f"higher than the maximum allowed value ({offered})"
        if 0 < value < smallest:
            bound = f"lower than the minimum allowed value ({smallest})"
        raise fail(method, NOT_ALLOWED, f"negotiated {name} = {value} is {bound}")
    return value


def open_vhost(peer: Peer, method: Method) -> None:
    """connection.open. If there are several reasons to refuse it, the first in RabbitMQ's order is given."""
    name, broker = method.text("virtual_host"), peer.broker
    most = broker.settings.connection_max
    if 0 <= most <= broker.connection_count:
        broker.refused("limit")
        # the text of later versions; 3.10.8 has no such limit
        raise fail(method, NOT_ALLOWED, f"connection refused: node connection limit ({most}) is reached")
    vhost = broker.vhosts.get(name)
    if vhost is None or vhost.is_leaving:
        broker.refused("vhost")
        raise fail(method, NOT_ALLOWED, f"vhost {name} not found")
    access = f"access to vhost '{name}' refused for user '{peer.user}'"
    if 0 <= vhost.connections_max <= vhost.connection_count:
        broker.refused("limit")
        raise fail(method, NOT_ALLOWED, f"{access}: connection limit ({vhost.connections_max}) is reached")
    user = broker.users.by_name.get(peer.user)
    most = -1 if user is None else user.limits.get("max-connections", -1)
    if 0 <= most <= len(broker.connections_of(peer.user)):
        broker.refused("limit")
        text = f"connection refused for user '{peer.user}': user connection limit ({most}) is reached"
        raise fail(method, NOT_ALLOWED, text)
    if user is None or name not in user.permissions:
        broker.refused("access")
        raise fail(method, NOT_ALLOWED, access)
    peer.vhost = vhost
    broker.connected(peer, vhost)
    peer.is_counted = True
    peer.connected_us = peer.now_us
    broker.churn.connection_created += 1
    peer.send(0, grammar.CONNECTION_OPEN_OK)
    broker.tell(peer, f"{peer.address}: user {quoted(peer.user)} connected to vhost {quoted(name)}")


def update_secret(peer: Peer, method: Method) -> None:
    """connection.update-secret: the new one is ignored, as in RabbitMQ, since passwords do not expire."""
    peer.send(0, grammar.CONNECTION_UPDATE_SECRET_OK)
