"""All settings of `leveret serve`, one table. Options, variables, the file's keys, --print-config and
docs/reference/configuration.md are made of it (`tools/settings_page.py` writes the last two down).

A new setting is an entry here, and a reader of its value; if it can change while the broker runs, also a line in
reload.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.broker.quotas import QUOTAS
from leveret.cli.configuration.kinds import OFF, Amount, Choice, Kind, Names, Switch, Text, Whole
from leveret.net.alarms import DISK_FREE_LIMIT_OCTETS, MEMORY_SHARE
from leveret.net.certificate import LOGIN_FROM, SAN_TYPES
from leveret.net.certificates import VERIFY
from leveret.net.logs import FORMATS, LEVELS
from leveret.store.journal import SPARE_FILES_DEFAULT

PORT: Final = 65535
PREFIX: Final = "LEVERET_"
"""Of environment variables."""


class Setting(NamedTuple):
    """name: in the file; the option is --NAME with hyphens, the variable LEVERET_NAME in capitals.

    kind: what values there are; default: None = nothing, `absent` says what that means; doc: its first sentence is the
    option's help; unit: of a number, "" = none; example: a value to show where there is no default; is_live: a reload
    changes it in the running broker, else it waits for the next start; is_secret: it has no option, for other users see
    a command's arguments, and is never shown.
    """

    name: str
    kind: Kind
    default: object
    doc: str
    unit: str = ""
    absent: str = ""
    example: object = None
    is_live: bool = False
    is_secret: bool = False

    @property
    def option(self) -> str:
        """ "" for a secret."""
        return "" if self.is_secret else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"{PREFIX}{self.name.upper()}"

    @property
    def summary(self) -> str:
        """The first sentence."""
        return self.doc.partition(". ")[0].removesuffix(".") + "."


def _quota(name: str, doc: str, unit: str) -> Setting:
    """What no application of the usual kind meets: leveret.broker.quotas."""
    return Setting(name, Whole(-1), QUOTAS[name][0], doc, unit, is_live=True)


# what they are about -> the settings
SECTIONS: Final[dict[str, tuple[Setting, ...]]] = {
    "Listening": (
        Setting(
            "host", Names(), ["127.0.0.1"],
            "Address to listen on; several are a list. Nothing listens beyond this machine unless it stands here;"
            ' "0.0.0.0" and "::" are all addresses. The user guest may log in from this machine only, so a broker'
            " that others reach needs a user.",
        ),
        Setting("port", Whole(0, PORT, OFF), 5672, "Port of AMQP; 0 takes a free one, off: none, for TLS only."),
        Setting(
            "busy_poll_us", Whole(0, 1000), 100,
            "How long to go on asking for input before the thread sleeps, while waits are about as short; 0: never. "
            "A processor that sleeps takes 20 to 50 µs to wake on a virtual machine, in which a broker that is awake "
            "has replied. An idle broker sleeps in any case, and so does one with a single processor. Where the "
            "processor time of a container is scarce, 0 saves some of it under moderate load.",
            "µs",
        ),
        Setting(
            "remote_user_required", Switch(), False,
            "Refuse to start when the broker listens beyond this machine and nobody could log in from there. "
            "Otherwise a warning says so. The container image sets it.",
        ),
    ),
    "Data": (
        Setting(
            "data_dir", Text("DIR"), None,
            "Directory of the journal. It is made if it is not there, and one broker has it at a time.",
            absent="$XDG_DATA_HOME/leveret, else ~/.local/share/leveret", example="/var/lib/leveret",
        ),
        Setting(
            "tables_dir", Text("DIR|off"), None,
            "Directory of the streams' tables; off: none are made. The directory may be shared with other "
            "programs, which read the Parquet files there.",
            absent="tables/ in the data directory", example="/var/lib/leveret/tables",
        ),
        Setting(
            "definitions", Text("FILE"), None,
            "File of definitions, as RabbitMQ exports them; imported at each start. What the file does not name "
            "stays as it is.",
            absent="none", example="/etc/leveret/definitions.json",
        ),
        Setting(
            "journal_spare_files", Whole(), SPARE_FILES_DEFAULT,
            "Journal files that are kept to be written again. A file that the disk knows already is synced "
            "faster.",
            "files",
        ),
    ),
    "Logs": (
        Setting(
            "log_level", Choice(LEVELS), "info",
            "Least severity that is logged. The audit of what operators change, and reloads, are logged in any case.",
            is_live=True,
        ),
        Setting(
            "log_format", Choice(FORMATS), "text",
            "Lines of text, or one object of JSON per line. An object has time (RFC 3339, UTC), level, logger and"
            " event, and where they are known connection, user and vhost.",
            is_live=True,
        ),
        Setting(
            "trace", Names(), [],
            "Virtual host whose firehose is on from the start; several are a list.",
            example=["/"],
        ),
    ),
    "What clients see": (
        Setting(
            "product", Text(), "RabbitMQ",
            "Name that clients are told. Some take another way with what they do not know, so it is best left as "
            "it is.",
        ),
        Setting(
            "version", Text(), "3.13.7",
            "Version of RabbitMQ that clients are told. Some decide by it what they may use.",
        ),
        Setting(
            "cluster_name", Text(), None,
            "Name of the cluster. Federation tells brokers apart by it.",
            absent="that of the data directory, which is made of the host's name and chance", example="orders@eu",
        ),
    ),
    "Limits": (
        Setting(
            "heartbeat_s", Whole(0, 65535), 60,
            "Heartbeat that clients are offered; 0: none. A client may choose another one. Whoever is silent for "
            "twice as long is disconnected.",
            "s", is_live=True,
        ),
        Setting(
            "frame_max", Whole(4096, 1 << 31), 131072,
            "Size of a frame that clients are offered. Clients may choose a smaller one.",
            "octets",
        ),
        Setting("channel_max", Whole(1, 65535), 2047, "Channels of one connection.", "channels", is_live=True),
        Setting(
            "connection_max", Whole(-1), -1,
            "Connections of the whole broker; -1: no limit. Those that are there stay when the limit becomes "
            "smaller.",
            "connections", is_live=True,
        ),
        Setting(
            "max_message_octets", Whole(1), 128 << 20,
            "Size of a message's body. A larger one closes the channel.",
            "octets", is_live=True,
        ),
        Setting(
            "consumer_timeout_ms", Whole(), 30 * 60 * 1000,
            "Channels with a delivery that is unacknowledged for longer are closed; 0: never. RabbitMQ's "
            "consumer_timeout.",
            "ms", is_live=True,
        ),
        Setting(
            "send_timeout_ms", Whole(), 30 * 1000,
            "A connection whose client takes nothing of what it is sent for longer is reset, though it sends "
            "heartbeats: its unacknowledged messages go to others, and it may recover; 0: never. One that reads slowly "
            "is kept. RabbitMQ's tcp_listen_options.send_timeout is 15 s and begins when its own buffers are full: "
            "there a client that reads nothing is cut after about 30 s.",
            "ms", is_live=True,
        ),
        Setting(
            "disk_free_limit", Amount(), DISK_FREE_LIMIT_OCTETS,
            "Publishers are blocked when the disk has less free. Octets, 50MB, 1GiB, or a share of the machine's "
            "memory.",
            "octets", is_live=True,
        ),
        Setting(
            "memory_high_watermark", Amount(), MEMORY_SHARE,
            "Publishers are blocked when more memory is in use. A share of the machine's memory (or of the "
            "control group's), or an amount as above.",
            "share", is_live=True,
        ),
        Setting(
            "drain_timeout_ms", Whole(), 0,
            "Time that consumers have at SIGTERM to acknowledge what they are working on. Nothing new is "
            "delivered meanwhile, and nobody may connect. 0: connections are closed at once, as RabbitMQ does; "
            "what was not acknowledged is delivered again after the start.",
            "ms", is_live=True,
        ),
    ),
    "Quotas": (
        _quota(
            "consumer_max_per_channel", "Consumers of one channel; -1: no limit. One more is refused, by 530.",
            "consumers",
        ),
        _quota("queue_max_per_vhost", "Queues of one virtual host; -1: no limit. One more: 406.", "queues"),
        _quota("exchange_max_per_vhost", "Exchanges of one virtual host; -1: no limit. One more: 406.", "exchanges"),
        _quota("binding_max_per_vhost", "Bindings of one virtual host; -1: no limit. One more: 406.", "bindings"),
        _quota(
            "staged_producer_max_per_user",
            "Staged producers (queries, docs/guides/stages.md) of one user in a virtual host; -1: no limit. "
            "One more: 406.",
            "producers",
        ),
        _quota(
            "stage_max_per_user", "Stages of one user in a virtual host; -1: no limit. One more: 406.", "stages",
        ),
        _quota(
            "staged_producer_unused_days_max",
            "A staged producer that nobody uses for so long is closed, and refused when it comes back; no stage waits "
            "for longer either. -1: never.",
            "days",
        ),
        _quota(
            "topic_words_max_per_exchange",
            "Words of its patterns that a topic exchange compares with one routing key, at worst; -1: no limit. A "
            "binding beyond: 406. Only thousands of patterns with many wildcards each come near it.",
            "words",
        ),
        _quota(
            "connection_max_per_address",
            "Connections from one IP address; -1: no limit. One more takes the place of its oldest connection that has "
            "not opened a virtual host yet; if all of them have, the new one is closed.",
            "connections",
        ),
        _quota(
            "handshake_max",
            "Connections that have not opened a virtual host yet; -1: no limit. One more takes the place of the oldest "
            "of them, of the address that has most of them, which is closed: so idle sockets keep nobody out.",
            "connections",
        ),
    ),
    "Logins": (
        Setting(
            "default_user", Text(), "guest",
            'First user of a new data directory, an administrator who may do everything in "/". Another name than'
            " guest needs default_pass, and then there is no guest. A data directory that has users already is "
            "left as it is.",
        ),
        Setting("default_pass", Text(), "guest", "Password of the first user.", is_secret=True),
        Setting(
            "loopback_users", Names(), ["guest"],
            "User who may log in from this machine only; several are a list.",
            is_live=True,
        ),
        Setting(
            "password_hashing", Choice(("sha256", "sha512", "argon2id")), "sha256",
            "How new passwords are hashed. argon2id needs leveret[argon2], and is known to no RabbitMQ.",
        ),
    ),
    "TLS": (
        Setting(
            "tls_port", Whole(0, PORT), None,
            "Port for amqps, beside the port without TLS; usually 5671.",
            absent="no TLS", example=5671,
        ),
        Setting(
            "tls_cert", Text("FILE"), None,
            "PEM file: the broker's certificate and those that lead to its authority. A changed file is noticed "
            "within seconds.",
            absent="none", example="/etc/leveret/tls/server.pem", is_live=True,
        ),
        Setting(
            "tls_key", Text("FILE"), None,
            "PEM file: the key of that certificate.",
            absent="none", example="/etc/leveret/tls/server.key", is_live=True,
        ),
        Setting(
            "tls_key_password", Text(), None,
            "Password of the key, if it is encrypted.",
            absent="none", is_live=True, is_secret=True,
        ),
        Setting(
            "tls_ca", Text("FILE"), None,
            "PEM file: the authorities whose certificates clients may have.",
            absent="none", example="/etc/leveret/tls/clients.pem", is_live=True,
        ),
        Setting(
            "tls_verify", Choice(tuple(VERIFY)), None,
            "Whether clients are asked for a certificate; optional: they need none. What is not none needs "
            "tls_ca.",
            absent="optional with tls_ca, else none", example="required", is_live=True,
        ),
        Setting(
            "ssl_cert_login_from", Choice(LOGIN_FROM), "distinguished_name",
            "What of a client's certificate is its user's name. RabbitMQ's setting of this name.",
            is_live=True,
        ),
        Setting(
            "ssl_cert_login_san_type", Choice(tuple(SAN_TYPES)), "dns",
            "Which alternative names are meant by subject_alternative_name.",
            is_live=True,
        ),
        Setting("ssl_cert_login_san_index", Whole(0, PORT), 0, "Which one of those, from 0.", is_live=True),
    ),
    "HTTP API": (
        Setting(
            "admin_host", Text("ADDRESS"), None,
            "Address of the HTTP API.",
            absent="127.0.0.1", example="127.0.0.1",
        ),
        Setting(
            "admin_port", Whole(0, PORT), None,
            "Port of the HTTP API; 0: none.",
            absent="15672 if the port is free", example=15672,
        ),
        Setting(
            "admin_tls_port", Whole(1, PORT), None,
            "Port of the HTTP API with TLS, with the broker's certificate; usually 15671.",
            absent="none", example=15671,
        ),
        Setting(
            "metrics_port", Whole(0, PORT), 0,
            "Port of /metrics without a login; usually 15692; 0: none. The HTTP API has the same with a login.",
        ),
        Setting("metrics_host", Text("ADDRESS"), "127.0.0.1", "Address of that port."),
        Setting(
            "cors_origins", Names(), [],
            "Origin of web pages that may call the HTTP API; several are a list.",
            example=["https://console.example.com"],
        ),
    ),
}  # fmt: skip

SETTINGS: Final[dict[str, Setting]] = {each.name: each for section in SECTIONS.values() for each in section}
