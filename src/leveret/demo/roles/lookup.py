"""The lookup service: returns the aircraft of a tail number, over direct reply-to. A process of its own.

A request is a flight with ``id`` and ``tailnum``; the reply is ``{"id": …, "plane": {…}}``, with ``null`` for an
unknown aircraft. The account matches replies with flights by the id.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from threading import Event

from leveret.client import BlockingConnection, Properties
from leveret.demo.data import load_planes
from leveret.demo.plan import PLANES_QUEUE, DemoPlan
from leveret.demo.roles.role import ProgressReporter, stop_signal

TURN = 500
"""Requests answered before the replies are flushed together."""


class Planes:
    """The table of aircraft, with their JSON encoded in advance."""

    def __init__(self, planes: Mapping[str, object]) -> None:
        self._tails = {number: f',"plane":{json.dumps(plane)}}}'.encode() for number, plane in planes.items()}

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request.

        Raises:
            ValueError: the request is not a JSON object with an id.
        """
        fields = json.loads(request.decode())
        if not isinstance(fields, dict) or "id" not in fields:
            raise ValueError(f"not a lookup request: {request[:80]!r}")
        tail = self._tails.get(fields.get("tailnum") or "", b',"plane":null}')
        return b'{"id":' + json.dumps(fields["id"]).encode() + tail


def serve(url: str, planes: Planes, stop: Event, reporter: ProgressReporter) -> None:
    """Answer requests until told to stop."""
    answered, reply = 0, Properties()
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        # without acknowledgements: a request is worthless once its requester has given up
        channel.consume(PLANES_QUEUE, no_ack=True)
        reporter.state(ready=1)
        while not stop.is_set():
            for request in channel.deliveries(TURN, 0.2):
                to, reply.correlation_id = request.properties.reply_to, request.properties.correlation_id
                if to is None:
                    continue  # no reply wanted
                channel.publish(planes.answer(request.body), "", to, reply)
                answered += 1
            channel.flush()
            reporter.progress(answered)
    reporter.state(count=answered)


def main(plan: DemoPlan) -> None:
    """Load the planes and serve requests."""
    serve(plan.url, Planes(load_planes()), stop_signal(), ProgressReporter())


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]))
