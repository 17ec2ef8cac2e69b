"""Messages that the broker itself sends to a client, with JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from leveret.broker.channel import BrokerChannel
from leveret.wire.frames import content_frames
from leveret.wire.grammar import MethodSpec
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


def send_json(
    peer: Peer, channel: BrokerChannel, spec: MethodSpec, key: str, facts: dict[str, Value], **values: object
) -> None:
    """Send a message that is not acknowledged. spec, key, values: basic.deliver or get-ok, and its fields."""
    tag = channel.next_tag
    channel.next_tag += 1
    fields = {"delivery_tag": int(tag), "redelivered": False, "exchange": "", "routing_key": key, **values}
    peer.send(channel.number, spec, **fields)
    body = json.dumps(facts).encode()
    header = encode_header(Properties(content_type="application/json"), len(body))
    peer.output.writer.write(content_frames(int(channel.number), header, body, int(peer.frame_max)))
