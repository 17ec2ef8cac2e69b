"""The broker as commands see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.broker.broker import Broker
from leveret.control.directory import Directory
from leveret.control.host import Host


@dataclass
class LinkWindow:
    """Holds the window of the rates of one federation link, see leveret.control.views.rates."""

    window: object = None


@dataclass
class BrokerNode:
    """The broker and its process."""

    broker: Broker
    host: Host
    name: str  # as RabbitMQ's node names: leveret@HOST
    data_dir: str
    version: str  # leveret's version
    core: str  # "compiled" or "interpreted"
    queues: Directory = field(default_factory=Directory)  # sorted names
    exchanges: Directory = field(default_factory=Directory)
    window: object = None  # of the node's rates, see leveret.control.views.rates
    links: dict[str, LinkWindow] = field(default_factory=dict)  # by link id
