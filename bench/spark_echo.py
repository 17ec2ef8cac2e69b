#!/usr/bin/env python3
"""A service that answers each request with its own body: bench/spark_echo.py URL QUEUE. It ends at the end of its
input."""

import select
import sys

from leveret.client import BlockingConnection
from leveret.client.protocol.delivering import DeliveryReader, RawDeliveries
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import property_spans

HAS_CORRELATION_ID = b"\x04\0"


def main() -> None:
    """Serve, and print a line when the service is ready. It must not be what limits the callers, so it makes no object
    for a request, as a service of a user would."""
    url, queue = sys.argv[1:]
    with BlockingConnection(url, name="echo", reconnect=False) as connection:
        channel = connection.channel()
        requests = RawDeliveries(channel.number)
        connection.core.deliveries = DeliveryReader(requests)
        channel.declare_queue(queue)
        channel.consume(queue, no_ack=True, deliver=requests.add)
        routes: dict[bytes, bytes] = {}
        print("serving", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            channel.receive(0.5)
            frames = []
            arrived = requests.take(len(requests))
            for header, body in zip(arrived.headers, arrived.bodies, strict=True):
                asked = {name: header[start:stop] for name, start, stop in property_spans(header)}
                reply_to = asked["reply_to"]
                if reply_to not in routes:
                    key = reply_to[1:].decode()
                    routes[reply_to] = method_frame(channel.number, grammar.BASIC_PUBLISH, routing_key=key)
                answer = header[:12] + HAS_CORRELATION_ID + asked["correlation_id"]
                frames += routes[reply_to], content_frames(channel.number, answer, body, channel.frame_max)
            channel.publish_frames(b"".join(frames), len(frames) // 2)
            channel.flush()
        channel.delete_queue(queue)


if __name__ == "__main__":
    main()
