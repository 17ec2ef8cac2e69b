"""The table of all settings of `leveret serve`.

Options, environment variables, the file's keys, --print-config and docs/reference/configuration.md are generated from
it (`tools/settings_page.py` writes the last two). A new setting needs an entry here and code that reads its value, and
a line in reload.py if it can change while the broker runs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.broker.access.quotas import QUOTAS
from leveret.cli.configuration.kinds import OFF, Amount, BooleanKind, Choice, Kind, Names, Text, Whole
from leveret.net.alarms import DISK_FREE_LIMIT_OCTETS, MEMORY_SHARE
from leveret.net.connections.certificate import LOGIN_FROM, SAN_TYPES
from leveret.net.connections.certificates import VERIFY
from leveret.net.logs import FORMATS, LEVELS
from leveret.store.journal import SPARE_FILES_DEFAULT

PORT: Final = 65535
PREFIX: Final = "LEVERET_"
"""The prefix of environment variables."""


class Setting(NamedTuple):
    """One setting.

    Attributes:
        name: its key in the file; the option is --NAME with hyphens, the variable LEVERET_NAME in capitals.
        kind: the type of its values.
        default: None means not set; `absent` says what then happens.
        doc: its documentation; the first sentence is the option's help.
        unit: of a number; "" for none.
        example: a value for the example file if there is no default.
        is_live: a reload applies it to the running broker; otherwise it takes effect at the next start.
        is_secret: never shown, and without an option, since other users can see a command's arguments.
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
        """The command line option; "" for a secret."""
        return "" if self.is_secret else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"{PREFIX}{self.name.upper()}"

    @property
    def summary(self) -> str:
        """The first sentence of `doc`."""
        return self.doc.partition(". ")[0].removesuffix(".") + "."


def _quota(name: str, doc: str, unit: str) -> Setting:
    """What no application of the usual kind meets: leveret.broker.access.quotas."""
    return Setting(name, Whole(-1), QUOTAS[name][0], doc, unit, is_live=True)


# section title -> settings
SECTIONS: Final[dict[str, tuple[Setting, ...]]] = {
    "Listening": (
        Setting(
            "host", Names(), ["127.0.0.1"],
            "Address to listen on, or a list of addresses. The default accepts connections from this machine only; "
            '"0.0.0.0" and "::" mean all addresses. The user guest may log in from this machine only, so a broker '
            "that is reachable from elsewhere needs another user.",
        ),
        Setting("port", Whole(0, PORT, OFF), 5672, "AMQP port; 0: any free port; off: no port without TLS."),
        Setting(
            "busy_poll_us", Whole(0, 1000), 100,
            "How long the event loop polls for input before it sleeps, while recent waits were about that short; 0: "
            "never. Waking a sleeping processor takes 20 to 50 µs on a virtual machine, in which a polling broker "
            "has already replied. An idle broker always sleeps, and so does one on a single processor. In a "
            "container with little processor time, 0 saves some of it under moderate load.",
            "µs",
        ),
        Setting(
            "remote_user_required", BooleanKind(), False,
            "Refuse to start if the broker listens on addresses beyond this machine but no user could log in from "
            "elsewhere. If false, only a warning is logged. The container image sets it.",
        ),
    ),
    "Data": (
        Setting(
            "data_dir", Text("DIR"), None,
            "Directory of the journal. It is created if it does not exist. Only one broker can use it at a time.",
            absent="$XDG_DATA_HOME/leveret, else ~/.local/share/leveret", example="/var/lib/leveret",
        ),
        Setting(
            "tables_dir", Text("DIR|off"), None,
            "Directory of the streams' tables; off: no tables are written. Other programs can share the directory "
            "and read the Parquet files.",
            absent="tables/ in the data directory", example="/var/lib/leveret/tables",
        ),
        Setting(
            "definitions", Text("FILE"), None,
            "Definitions file, in RabbitMQ's export format; imported at every start. Objects that the file does not "
            "name are unchanged.",
            absent="none", example="/etc/leveret/definitions.json",
        ),
        Setting(
            "journal_spare_files", Whole(), SPARE_FILES_DEFAULT,
            "Number of journal files kept for reuse. Syncing a file that is already allocated on disk is faster.",
            "files",
        ),
    ),
    "Logs": (
        Setting(
            "log_level", Choice(LEVELS), "info",
            "Lowest severity that is logged. The audit of operators' changes and reloads are always logged.",
            is_live=True,
        ),
        Setting(
            "log_format", Choice(FORMATS), "text",
            "Plain text, or one JSON object per line. An object has time (RFC 3339, UTC), level, logger and event, "
            "and, if known, connection, user and vhost.",
            is_live=True,
        ),
        Setting(
            "trace", Names(), [],
            "Virtual host, or a list of virtual hosts, whose firehose is on from the start.",
            example=["/"],
        ),
    ),
    "What clients see": (
        Setting(
            "product", Text(), "RabbitMQ",
            "Product name reported to clients. Some clients behave differently with an unknown product, so the "
            "default is best.",
        ),
        Setting(
            "version", Text(), "3.13.7",
            "RabbitMQ version reported to clients. Some clients use it to decide which features are available.",
        ),
        Setting(
            "cluster_name", Text(), None,
            "Name of the cluster. Federation identifies brokers by it, so it must be unique.",
            absent="kept in the data directory; made of the host name and a random suffix", example="orders@eu",
        ),
    ),
    "Limits": (
        Setting(
            "heartbeat_s", Whole(0, 65535), 60,
            "Heartbeat interval offered to clients; 0: none. A client may choose another one. A client that is "
            "silent for twice as long is disconnected.",
            "s", is_live=True,
        ),
        Setting(
            "frame_max", Whole(4096, 1 << 31), 131072,
            "Maximum frame size offered to clients. Clients may choose a smaller one.",
            "octets",
        ),
        Setting("channel_max", Whole(1, 65535), 2047, "Maximum channels per connection.", "channels", is_live=True),
        Setting(
            "connection_max", Whole(-1), -1,
            "Maximum number of connections to the broker; -1: no limit. Lowering the limit closes no open connections.",
            "connections", is_live=True,
        ),
        Setting(
            "max_message_octets", Whole(1), 128 << 20,
            "Maximum size of a message body. Publishing a larger message closes the channel.",
            "octets", is_live=True,
        ),
        Setting(
            "consumer_timeout_ms", Whole(), 30 * 60 * 1000,
            "A channel whose delivery stays unacknowledged for longer is closed; 0: never. RabbitMQ's "
            "consumer_timeout.",
            "ms", is_live=True,
        ),
        Setting(
            "send_timeout_ms", Whole(), 30 * 1000,
            "A connection whose client reads nothing for longer is reset, even if it sends heartbeats; its "
            "unacknowledged messages are redelivered to other consumers; 0: never. A client that reads slowly stays "
            "connected. RabbitMQ's tcp_listen_options.send_timeout is 15 s and starts when its own buffers are "
            "full, so RabbitMQ disconnects a client that reads nothing after about 30 s.",
            "ms", is_live=True,
        ),
        Setting(
            "disk_free_limit", Amount(), DISK_FREE_LIMIT_OCTETS,
            "Publishers are blocked while free disk space is below this. A number of bytes, 50MB, 1GiB, or a "
            "fraction of the machine's memory.",
            "octets", is_live=True,
        ),
        Setting(
            "memory_high_watermark", Amount(), MEMORY_SHARE,
            "Publishers are blocked while memory use is above this. A fraction of the memory of the machine (or "
            "control group), or an amount as above.",
            "share", is_live=True,
        ),
        Setting(
            "drain_timeout_ms", Whole(), 0,
            "How long consumers may take after SIGTERM to acknowledge their messages. Meanwhile the broker delivers "
            "nothing new and refuses connections. 0: connections are closed at once, as in RabbitMQ; unacknowledged "
            "messages are redelivered after the restart.",
            "ms", is_live=True,
        ),
    ),
    "Quotas": (
        _quota(
            "consumer_max_per_channel", "Maximum number of consumers per channel; -1: no limit. More are refused "
                                        "with error 530.",
            "consumers",
        ),
        _quota("queue_max_per_vhost", "Maximum number of queues per virtual host; -1: no limit. More are refused "
                                      "with error 406.", "queues"),
        _quota("exchange_max_per_vhost", "Maximum number of exchanges per virtual host; -1: no limit. More are "
                                         "refused with error 406.", "exchanges"),
        _quota("binding_max_per_vhost", "Maximum number of bindings per virtual host; -1: no limit. More are "
                                        "refused with error 406.", "bindings"),
        _quota(
            "staged_producer_max_per_user",
            "Maximum number of staged producers (queries, docs/guides/stages.md) per user and virtual host; -1: no "
            "limit. More are refused with error 406.",
            "producers",
        ),
        _quota(
            "stage_max_per_user", "Maximum number of stages per user and virtual host; -1: no limit. More are "
                                  "refused with error 406.", "stages",
        ),
        _quota(
            "staged_producer_unused_days_max",
            "A staged producer that is idle for longer is closed, and refused if it returns; stages expire after "
            "the same time. -1: never.",
            "days",
        ),
        _quota(
            "publisher_max_per_user",
            "Maximum number of publisher references (docs/guides/exactly-once.md) per user and virtual host; -1: no "
            "limit. More are refused with error 406.",
            "references",
        ),
        _quota(
            "publisher_unused_days_max",
            "A publisher reference that is unused for longer is closed, and refused if its client returns. -1: never.",
            "days",
        ),
        _quota(
            "topic_words_max_per_exchange",
            "Maximum number of pattern words that a topic exchange compares with one routing key in the worst case; "
            "-1: no limit. A binding that exceeds it is refused with error 406. Only thousands of patterns with "
            "many wildcards reach it.",
            "words",
        ),
        _quota(
            "connection_max_per_address",
            "Maximum number of connections from one IP address; -1: no limit. One more replaces the address's "
            "oldest connection that has not opened a virtual host yet; if all have, the new connection is closed.",
            "connections",
        ),
        _quota(
            "handshake_max",
            "Maximum number of connections that have not opened a virtual host yet; -1: no limit. One more replaces "
            "the oldest of them from the address with the most, so idle sockets cannot lock out other clients.",
            "connections",
        ),
    ),
    "Logins": (
        Setting(
            "default_user", Text(), "guest",
            'First user of a new data directory: an administrator with all permissions in "/". Any name other than '
            "guest requires default_pass; the user guest is then not created. Has no effect on a data directory "
            "that already has users.",
        ),
        Setting("default_pass", Text(), "guest", "Password of the first user.", is_secret=True),
        Setting(
            "loopback_users", Names(), ["guest"],
            "User, or a list of users, that may log in from this machine only.",
            is_live=True,
        ),
        Setting(
            "password_hashing", Choice(("sha256", "sha512", "argon2id")), "sha256",
            "Hash function for new passwords. argon2id needs leveret[argon2]; RabbitMQ does not support it.",
        ),
    ),
    "TLS": (
        Setting(
            "tls_port", Whole(0, PORT), None,
            "Port for amqps, in addition to the port without TLS; usually 5671.",
            absent="no TLS", example=5671,
        ),
        Setting(
            "tls_cert", Text("FILE"), None,
            "PEM file with the broker's certificate chain. A changed file is reloaded within seconds.",
            absent="none", example="/etc/leveret/tls/server.pem", is_live=True,
        ),
        Setting(
            "tls_key", Text("FILE"), None,
            "PEM file with the private key of the certificate.",
            absent="none", example="/etc/leveret/tls/server.key", is_live=True,
        ),
        Setting(
            "tls_key_password", Text(), None,
            "Password of the private key, if it is encrypted.",
            absent="none", is_live=True, is_secret=True,
        ),
        Setting(
            "tls_ca", Text("FILE"), None,
            "PEM file with the certificate authorities that client certificates are verified against.",
            absent="none", example="/etc/leveret/tls/clients.pem", is_live=True,
        ),
        Setting(
            "tls_verify", Choice(tuple(VERIFY)), None,
            "Whether clients must present a certificate; optional: a certificate is verified if presented. All "
            "values except none require tls_ca.",
            absent="optional with tls_ca, else none", example="required", is_live=True,
        ),
        Setting(
            "ssl_cert_login_from", Choice(LOGIN_FROM), "distinguished_name",
            "Which part of a client certificate is the user name. RabbitMQ's setting of the same name.",
            is_live=True,
        ),
        Setting(
            "ssl_cert_login_san_type", Choice(tuple(SAN_TYPES)), "dns",
            "Type of alternative name used for subject_alternative_name.",
            is_live=True,
        ),
        Setting("ssl_cert_login_san_index", Whole(0, PORT), 0, "Index of the alternative name, from 0.", is_live=True),
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
            "Port of the HTTP API with TLS, using the broker's certificate; usually 15671.",
            absent="none", example=15671,
        ),
        Setting(
            "metrics_port", Whole(0, PORT), 0,
            "Port of /metrics without login; usually 15692; 0: none. The HTTP API serves /metrics with login.",
        ),
        Setting("metrics_host", Text("ADDRESS"), "127.0.0.1", "Address of the port for /metrics without login."),
        Setting(
            "cors_origins", Names(), [],
            "Origin, or a list of origins, of web pages that may call the HTTP API.",
            example=["https://console.example.com"],
        ),
    ),
}  # fmt: skip

SETTINGS: Final[dict[str, Setting]] = {each.name: each for section in SECTIONS.values() for each in section}
