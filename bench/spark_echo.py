#!/usr/bin/env python3
"""A service that answers each request with its own body: bench/spark_echo.py URL QUEUE. It ends at the end of its
input."""

import select
import sys

from leveret.client import BlockingConnection, Properties

RUN = 1000


def main() -> None:
    """Serve, and print a line when the service is ready."""
    url, queue = sys.argv[1:]
    with BlockingConnection(url, name="echo", reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue(queue)
        channel.consume(queue, no_ack=True)
        print("serving", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            for request in channel.deliveries(RUN, 0.5):
                asked = request.properties
                answer = Properties(correlation_id=asked.correlation_id)
                channel.publish(request.body, "", asked.reply_to or "", answer)
            channel.flush()
        channel.delete_queue(queue)


if __name__ == "__main__":
    main()
