"""SIGHUP: the settings are chosen again, from the file as it is now; what can change while the broker runs does.

All or nothing: a file that can't be read, settings that do not fit together, a certificate that can't be used change
nothing at all. What was changed by `leveret ctl` stays as it is until the file says something new about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import click

from leveret.broker.quotas import QUOTAS
from leveret.cli.configuration.chosen import Chosen, said
from leveret.cli.configuration.settings import SECTIONS, Setting
from leveret.cli.configuration.wanted import Wanted, wanted
from leveret.net import logs
from leveret.net.certificates import Certificates
from leveret.net.notify import Notifier
from leveret.net.server import Server

logger = logging.getLogger("leveret.reload")
logger.setLevel(logging.INFO)  # who asks for a reload is told what came of it, whatever the level of the log
Apply = Callable[[Server, Wanted], None]
# what the broker looks up whenever it needs it; of new connections only, where each remembers
LOOKED_UP: Final = (
    "heartbeat_s", "channel_max", "connection_max", "max_message_octets", "loopback_users", "send_timeout_ms",
)  # fmt: skip


def _broker_setting(name: str) -> Apply:
    return lambda server, after: setattr(server.broker.settings, name, getattr(after.broker, name))


def _quotas(server: Server, after: Wanted) -> None:
    server.broker.set_quotas(after.broker.quotas)


def _log(server: Server, after: Wanted) -> None:
    logs.configure(after.chosen["log_level"], after.chosen["log_format"])


def _consumer_timeout(server: Server, after: Wanted) -> None:
    server.broker.settings.consumer_timeout_ms = after.chosen["consumer_timeout_ms"]
    server.broker.ack_timeout.set(after.chosen["consumer_timeout_ms"])


def _disk(server: Server, after: Wanted) -> None:
    server.limit(server.alarms.limits._replace(disk_free_octets=after.limits.disk_free_octets))


def _memory(server: Server, after: Wanted) -> None:
    server.limit(server.alarms.limits._replace(memory_octets=after.limits.memory_octets))


def _drain_timeout(server: Server, after: Wanted) -> None:
    server.shutdown.drain_timeout_ms = after.chosen["drain_timeout_ms"]


def _certificates(server: Server, after: Wanted) -> None:
    """They have been read before anything else was changed."""


# setting -> what makes the running broker act on it; those that are not here wait for the next start
LIVE: Final[dict[str, Apply]] = {
    "log_level": _log,
    "log_format": _log,
    "consumer_timeout_ms": _consumer_timeout,
    "disk_free_limit": _disk,
    "memory_high_watermark": _memory,
    "drain_timeout_ms": _drain_timeout,
    **{setting.name: _certificates for setting in SECTIONS["TLS"] if setting.is_live},
    **{name: _broker_setting(name) for name in LOOKED_UP},
    **dict.fromkeys(QUOTAS, _quotas),
}


class Reload:
    """wanted: what the running broker acts on; choose: all settings as of now, click.UsageError."""

    def __init__(
        self, begun: Wanted, choose: Callable[[], Chosen], server: Server, certificates: Certificates | None,
        notifier: Notifier,
    ) -> None:  # fmt: skip
        self.wanted = begun
        self._choose = choose
        self._server = server
        self._certificates = certificates
        self._notifier = notifier

    def __call__(self) -> None:
        """Choose again, and change what can be changed. Never raises."""
        self._notifier.reloading()
        try:
            self._change(wanted(self._choose()))
        except click.UsageError as error:
            logger.error("reload failed, nothing was changed: %s", error.message)
        finally:
            self._notifier.ready("reloaded")

    def _change(self, after: Wanted) -> None:
        before = self.wanted.chosen
        certificates, security = self._certificates, after.security
        if certificates is not None and security is not None and not certificates.reload(security):
            logger.error("reload failed, nothing was changed")
            return
        changed = before.differs(after.chosen)
        values = dict(before.values)
        for setting in changed:
            _tell(setting, before[setting.name], after.chosen[setting.name])
            if setting.is_live:
                values[setting.name] = after.chosen[setting.name]
                LIVE[setting.name](self._server, after)
        if not changed:
            logger.info("reload: no setting has changed")
        self.wanted = wanted(Chosen(values, after.chosen.origins))


def _tell(setting: Setting, before: object, after: object) -> None:
    shown = "***" if setting.is_secret else f"{_said(before)} -> {_said(after)}"
    if setting.is_live:
        logger.info("reload: %s: %s", setting.name, shown)
    else:
        logger.warning("reload: %s: %s takes effect at the next start", setting.name, shown)


def _said(value: object) -> str:
    return "(default)" if value is None else said(value)
