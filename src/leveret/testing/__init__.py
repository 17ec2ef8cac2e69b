"""Brokers for tests (docs/guides/testing.md): inside the test's process, with faults and time under the test's control.

    from leveret.testing import broker

    with broker() as rabbit:
        ...                                      # rabbit is the URL, for any AMQP 0-9-1 client
        rabbit.published("orders.eu", count=1)

The submodules `processes` and `simulation` run brokers in processes of their own and in simulated time. All names in
`__all__` are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.testing.kit.broker import LiveBroker, broker
    from leveret.testing.kit.clock import VirtualClock
    from leveret.testing.kit.faults import Fault, Faults
    from leveret.testing.kit.record import Message
    from leveret.testing.kit.run import BrokerDown
    from leveret.testing.kit.waiting import eventually, eventually_async

__all__ = [
    "BrokerDown",
    "Fault",
    "Faults",
    "LiveBroker",
    "Message",
    "VirtualClock",
    "broker",
    "eventually",
    "eventually_async",
]

# the module of each name
_MODULES = {
    "BrokerDown": "run",
    "Fault": "faults",
    "Faults": "faults",
    "LiveBroker": "broker",
    "Message": "record",
    "VirtualClock": "clock",
    "broker": "broker",
    "eventually": "waiting",
    "eventually_async": "waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"leveret.testing.kit.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
