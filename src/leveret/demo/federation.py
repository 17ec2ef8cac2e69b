"""Four brokers of the demo: hq with the federated exchange, and one upstream at each airport.

Only hq is configured, through its control socket, as an operator would with `leveret ctl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import Refused
from leveret.demo.broker import broker_process
from leveret.demo.errors import DemoError
from leveret.demo.plan import AIRPORTS, EXCHANGE
from leveret.testing.processes import LeveretProcess

POLICY = "airports"

UPSTREAM = {"ack-mode": "on-confirm", "prefetch-count": 1000, "reconnect-delay": 1}
"""Settings of each upstream, besides its URI. Outages are short, so the reconnect delay is, too."""


@dataclass(frozen=True)
class LinkReport:
    """The state of a link, as reported by hq.

    Attributes:
        status: ``starting``, ``running``, ``error`` or ``paused``.
        error: why it is not running; ``""`` if it is.
        messages: published at hq since the link was created.
        known: repeated after an outage and dropped, since hq had them.
        is_bound: whether all bindings of the federated exchange are in effect upstream.
        reconnects: since the link was created.
    """

    status: str = "starting"
    error: str = ""
    messages: int = 0
    known: int = 0
    is_bound: bool = False
    reconnects: int = 0

    @property
    def is_up(self) -> bool:
        """Whether messages cross the link."""
        return self.status == "running" and self.is_bound


class Headquarters:
    """Administration of hq."""

    def __init__(self, data_dir: Path) -> None:
        """Connect to the control socket. Raises DemoError if no broker answers."""
        try:
            self._control = ControlClient(str(data_dir), timeout_s=30.0)
        except OSError as error:
            raise DemoError(f"hq can't be administered: {error}") from error

    def federate(self, uris: Mapping[str, str]) -> None:
        """Make the airports upstreams of the flights' exchange. `uris` are their brokers' URIs by airport."""
        for airport, uri in uris.items():
            value = {"uri": uri, **UPSTREAM}
            self._call("set_parameter", component="federation-upstream", name=airport, value=value)
        definition = {"federation-upstream-set": "all"}
        self._call("set_policy", name=POLICY, pattern=f"^{EXCHANGE}$", definition=definition, apply_to="exchanges")

    def links(self) -> dict[str, LinkReport]:
        """Return the links by airport."""
        return {
            row["upstream"]: LinkReport(
                status=row["status"],
                error=row.get("error", ""),
                messages=row["messages"],
                known=row["known"],
                is_bound=row["bindings"] > 0 and row["unbound"] == 0,
                reconnects=row["reconnects"],
            )
            for row in self._call("federation_status")
        }

    def close(self) -> None:
        self._control.close()

    def _call(self, command: str, **fields: object) -> Any:
        try:
            return self._control.call(command, **fields)
        except (OSError, Refused) as error:
            raise DemoError(f"hq: {command} failed: {error}") from error


@dataclass(frozen=True)
class Brokers:
    """The four broker processes."""

    hq: LeveretProcess
    airports: dict[str, LeveretProcess]

    def urls(self) -> dict[str, str]:
        """Return the brokers' URLs by name."""
        return {name: broker.url for name, broker in (("hq", self.hq), *self.airports.items())}


@contextmanager
def four_brokers(data: Path, records: Path, arguments: Sequence[str] = ()) -> Iterator[Brokers]:
    """Run the four brokers within the context.

    Args:
        data: directory for their data directories, which are kept.
        records: directory for their last lines of output.
        arguments: more options of ``leveret serve``.

    Raises:
        DemoError: one did not start or stop properly.
    """
    with ExitStack() as parts:

        def start(name: str) -> LeveretProcess:
            log = records / f"broker-{name}.log"
            return parts.enter_context(broker_process(f"broker {name}", data / name, log, arguments))

        yield Brokers(start("hq"), {airport: start(airport) for airport in AIRPORTS})
