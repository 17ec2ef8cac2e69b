"""The broker as commands see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.broker.broker import Broker
from leveret.control.directory import Directory
from leveret.control.host import Host


@dataclass
class LinkWindow:
    """Of the rates of one federation link, see leveret.control.views.rates."""

    window: object = None


@dataclass
class Node:
    """name: as RabbitMQ's node names, leveret@HOST; data_dir: the data directory; core: "compiled" or "interpreted";
    version: leveret's own. queues, exchanges: their names in order. window: of its rates; links: of those of federation
    links, by id."""

    broker: Broker
    host: Host
    name: str
    data_dir: str
    version: str
    core: str
    queues: Directory = field(default_factory=Directory)
    exchanges: Directory = field(default_factory=Directory)
    window: object = None
    links: dict[str, LinkWindow] = field(default_factory=dict)
