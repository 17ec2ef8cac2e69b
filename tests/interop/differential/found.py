"""Scripts that once showed a defect, shrunk. Each is played on both brokers in every run."""

from __future__ import annotations

from ...conformance.raw import Typed
from .script import Script, step

__all__ = ["FOUND", "Typed"]

FOUND: dict[str, Script] = {
    "redeclared as another's": [
        step("1.1", "queue.declare", queue="q1", exclusive=True, auto_delete=True),
        step("1.1", "queue.declare", queue="q1"),
        step("2.1", "queue.declare", queue="q2"),
        step("1.1", "queue.declare", queue="q2", exclusive=True, durable=True),
    ],
    "unbinding another's queue": [
        step("2.2", "queue.declare", queue="q2", exclusive=True),
        step("1.2", "queue.unbind", queue="q2", exchange="amq.direct", routing_key="a.b"),
        step("2.2", "queue.bind", queue="q2", exchange="amq.direct", routing_key="a.b"),
        step("1.2", "queue.unbind", queue="q2", exchange="amq.direct", routing_key="a.b"),
    ],
    "names of wire types": [
        step("1.1", "queue.declare", queue="q1", arguments={"x-dead-letter-exchange": Typed("b", 3)}),
        step("1.1", "queue.declare", queue="q1", arguments={"x-single-active-consumer": Typed("f", 1.0)}),
    ],
}
