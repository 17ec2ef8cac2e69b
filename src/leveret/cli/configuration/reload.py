"""Reload on SIGHUP: the settings are read again, and those that can change in the running broker are applied.

A reload applies all changes or none: an unreadable file, contradictory settings or an unusable certificate change
nothing. Values set by `leveret ctl` stay until the file's value for them changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import click

from leveret.broker.access.quotas import QUOTAS
from leveret.cli.configuration.chosen import Chosen, said
from leveret.cli.configuration.settings import SECTIONS, Setting
from leveret.cli.configuration.wanted import ConvertedSettings, wanted
from leveret.net import logs
from leveret.net.connections.certificates import Certificates
from leveret.net.notify import Notifier
from leveret.net.server import Server

logger = logging.getLogger("leveret.reload")
logger.setLevel(logging.INFO)  # the result of a reload is logged whatever the log level
Apply = Callable[[Server, ConvertedSettings], None]
# settings that the broker looks up at each use; a connection keeps those that it looked up at its start
LOOKED_UP: Final = (
    "heartbeat_s", "channel_max", "connection_max", "max_message_octets", "loopback_users", "send_timeout_ms",
)  # fmt: skip


def _broker_setting(name: str) -> Apply:
    return lambda server, after: setattr(server.broker.settings, name, getattr(after.broker, name))


def _quotas(server: Server, after: ConvertedSettings) -> None:
    server.broker.set_quotas(after.broker.quotas)


def _log(server: Server, after: ConvertedSettings) -> None:
    logs.configure(after.chosen["log_level"], after.chosen["log_format"])


def _consumer_timeout(server: Server, after: ConvertedSettings) -> None:
    server.broker.settings.consumer_timeout_ms = after.chosen["consumer_timeout_ms"]
    server.broker.ack_timeout.set(after.chosen["consumer_timeout_ms"])


def _disk(server: Server, after: ConvertedSettings) -> None:
    server.limit(server.alarms.limits._replace(disk_free_octets=after.limits.disk_free_octets))


def _memory(server: Server, after: ConvertedSettings) -> None:
    server.limit(server.alarms.limits._replace(memory_octets=after.limits.memory_octets))


def _drain_timeout(server: Server, after: ConvertedSettings) -> None:
    server.shutdown.drain_timeout_ms = after.chosen["drain_timeout_ms"]


def _certificates(server: Server, after: ConvertedSettings) -> None:
    """Do nothing: certificates are reloaded before all other changes."""


# setting -> applies it to the running broker; the others take effect at the next start
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
    """The handler of SIGHUP."""

    def __init__(
        self, begun: ConvertedSettings, choose: Callable[[], Chosen], server: Server, certificates: Certificates | None,
        notifier: Notifier,
    ) -> None:  # fmt: skip
        self.wanted = begun  # the settings that the running broker uses
        self._choose = choose  # reads all settings; raises click.UsageError
        self._server = server
        self._certificates = certificates
        self._notifier = notifier

    def __call__(self) -> None:
        """Read the settings again and apply those that can change. Never raises."""
        self._notifier.reloading()
        try:
            self._change(wanted(self._choose()))
        except click.UsageError as error:
            logger.error("reload failed, nothing was changed: %s", error.message)
        finally:
            self._notifier.ready("reloaded")

    def _change(self, after: ConvertedSettings) -> None:
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
