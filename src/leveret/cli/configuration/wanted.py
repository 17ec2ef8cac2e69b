"""The settings, checked for consistency and converted for the parts of the process that use them."""

from __future__ import annotations

import socket
from typing import NamedTuple

from leveret import __version__
from leveret.broker.access.quotas import QUOTAS
from leveret.broker.broker import Settings
from leveret.cli import admin, logins, tls
from leveret.cli.admin import AdminSettings
from leveret.cli.configuration.chosen import Chosen
from leveret.cli.configuration.kinds import OFF
from leveret.net.alarms import ResourceLimits
from leveret.net.connections.certificates import TlsSettings
from leveret.net.quantity import octets
from leveret.net.resources import machine_memory_octets

# settings with the same names in the broker's Settings
BROKER = (
    "product", "version", "frame_max", "channel_max", "heartbeat_s", "max_message_octets", "consumer_timeout_ms",
    "send_timeout_ms", "connection_max",
)  # fmt: skip


class ConvertedSettings(NamedTuple):
    """The converted settings.

    Attributes:
        security: None without TLS.
        limits: of disk and memory.
        logins: fields of the broker's Settings that concern users.
    """

    chosen: Chosen
    security: TlsSettings | None
    admin: AdminSettings
    limits: ResourceLimits
    logins: dict[str, object]

    @property
    def broker(self) -> Settings:
        """The broker's Settings."""
        values = {name: self.chosen[name] for name in BROKER} | self.logins
        quotas = {each: self.chosen[each] for each in QUOTAS}
        name = self.chosen["cluster_name"] or ""
        host = socket.gethostname()
        return Settings(own_version=__version__, host=host, cluster_name=name, quotas=quotas, **values)

    @property
    def tables_dir(self) -> str:
        """The directory of the tables; "" for the default, also if "off" (earlier tables may be there)."""
        given = self.chosen["tables_dir"] or ""
        return "" if given == OFF else str(given)


def wanted(chosen: Chosen) -> ConvertedSettings:
    """Convert the settings. Raises click.UsageError if they contradict each other or need what is not installed."""
    memory = machine_memory_octets()
    limits = ResourceLimits(octets(chosen["disk_free_limit"], memory), octets(chosen["memory_high_watermark"], memory))
    security = tls.settings(chosen)
    return ConvertedSettings(chosen, security, admin.settings(chosen, security), limits, logins.settings(chosen))
