"""The airports of a federated run: their publishers, their links to hq, and the outages of these."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from leveret.demo import workspace
from leveret.demo.account.crossing import Copy
from leveret.demo.children import Child
from leveret.demo.data import Flights
from leveret.demo.errors import DemoError
from leveret.demo.federation import Brokers, Headquarters, LinkReport
from leveret.demo.outage import Outage
from leveret.demo.plan import AIRPORTS, AUDIT_STREAM, DemoPlan
from leveret.demo.progress import Display
from leveret.pipelines.audits.recording import record
from leveret.testing.processes import ProcessFailed

CUT, KILLED = "JFK", "LGA"
"""The airport whose link is cut, and the one whose broker is killed. The third has no outage."""

CUT_SHARE, CUT_S = 0.25, 2.0
KILL_SHARE, KILL_S = 0.6, 0.5
"""The share of an airport's flights at which an outage begins, and its duration in seconds."""

POLL_S = 0.1

PATIENCE_S = 30.0
"""How long a link may be down, outside of outages."""

QUIET_S = 5.0
"""Missing messages count as lost when none has arrived at hq for this long, with all links up."""


@dataclass(frozen=True)
class AirportSample:
    """The state of an airport at one time, for the picture. ``seconds`` counts from the start of the publishers."""

    airport: str
    seconds: float
    confirmed: int
    crossed: int


class Airports:
    """The publishers at the airports; implements ``Senders``.

    Attributes:
        flights: the number of flights per airport.
        outages: the planned outages.
        samples: the airports' states, at every check.
        links: the links' last reported states.
    """

    def __init__(self, plan: DemoPlan, brokers: Brokers, flights: Flights) -> None:
        self.flights = {airport: len(flights.leaving(airport).ids) for airport in AIRPORTS}
        self.outages = [
            Outage(CUT, "link cut", "link restored", CUT_SHARE, CUT_S, self._cut, self._restore),
            Outage(KILLED, "broker killed", "broker restarted", KILL_SHARE, KILL_S, self._kill, self._restart),
        ]
        self.samples: list[AirportSample] = []
        self.links: dict[str, LinkReport] = {}
        self._plan = plan
        self._brokers = brokers
        self._publishers: dict[str, Child] = {}
        self._dead: set[str] = set()
        self._began_s = self._moved_s = time.monotonic()
        self._up_s = dict.fromkeys(AIRPORTS, self._began_s)

    def prepare(self, parts: ExitStack, display: Display) -> None:
        """Make the airports upstreams of hq; return when messages can cross all links."""
        for folder in ("published", "confirmed"):
            (self._plan.records / folder).mkdir()
        if self._plan.cluster:
            for broker in (self._brokers.hq, *self._brokers.airports.values()):
                record(broker.url, AUDIT_STREAM)
        ports = {airport: broker.port for airport, broker in self._brokers.airports.items()}
        self._relay = parts.enter_context(Child("relay", self._plan, CUT, str(ports[CUT])))
        self._relay.wait_ready()
        ports[CUT] = int(self._relay.reported["port"])
        self._hq = Headquarters(self._brokers.hq.data_dir)
        parts.callback(self._hq.close)
        self._hq.federate({airport: f"amqp://guest:guest@127.0.0.1:{port}/%2F" for airport, port in ports.items()})
        while not all(self._link(airport).is_up for airport in AIRPORTS):
            time.sleep(POLL_S)
            self.look(display)
        display.phase(f"linked to hq: {', '.join(AIRPORTS)}; starting Spark")

    def start(self, parts: ExitStack) -> None:
        self._began_s = self._moved_s = time.monotonic()
        for airport in AIRPORTS:
            url = self._brokers.airports[airport].url
            child = self._publishers[airport] = parts.enter_context(Child("airport", self._plan, airport, url))
            if all(outage.airport != airport for outage in self.outages):
                child.tell("all clear")

    def look(self, display: Display) -> None:
        """Show the state of everything, and start or end outages that are due."""
        self._check()
        before, self.links = self.arrived, self._hq.links()
        if self.arrived != before:
            self._moved_s = time.monotonic()
        for airport in AIRPORTS:
            self._be_patient(airport)
            display.show(airport, self._confirmed(airport), f"{airport} {self._state(airport)}")
            sample = AirportSample(airport, self._now_s(), self._confirmed(airport), self._link(airport).messages)
            if self._publishers:
                self.samples.append(sample)
        display.show("at hq", self.arrived)
        for outage in self.outages:
            if self._publishers:
                self._step(outage, self._publishers[outage.airport], display)

    @property
    def finished(self) -> bool:
        if not self._publishers or not all(child.finished for child in self._publishers.values()):
            return False
        if not all(self._link(airport).is_up for airport in AIRPORTS):
            return False
        if any(outage.ended_s is None for outage in self.outages):
            return False
        quiet_s = time.monotonic() - self._moved_s
        is_all_here = all(self._link(airport).messages >= flights for airport, flights in self.flights.items())
        return quiet_s > (POLL_S if is_all_here else QUIET_S)

    @property
    def arrived(self) -> int:
        return sum(link.messages for link in self.links.values())

    def stop(self) -> None:
        for child in self._publishers.values():
            child.stop()

    @property
    def seconds(self) -> float:
        return max(child.reported["seconds"] for child in self._publishers.values())

    def published(self) -> list[Copy]:
        return workspace.read_copies(self._plan.records / "published")

    def confirmed(self) -> list[Copy]:
        return workspace.read_copies(self._plan.records / "confirmed")

    def _step(self, outage: Outage, publisher: Child, display: Display) -> None:
        link, flights = self._link(outage.airport), self.flights[outage.airport]
        was_on = outage.is_on
        said = outage.step(self._now_s, publisher.count, flights, link.messages, link.is_up)
        if was_on and not outage.is_on:
            publisher.tell("all clear")
        if said:
            display.phase(said)

    def _check(self) -> None:
        """Raise DemoError if a part has ended without being told to."""
        if self._relay.finished:
            raise DemoError("the relay of a link has ended")
        for child in self._publishers.values():
            child.finished  # noqa: B018  (asking raises if it failed)
        for name, broker in (("hq", self._brokers.hq), *self._brokers.airports.items()):
            if name not in self._dead and not broker.is_running:
                raise DemoError(f"the broker {name} stopped: {broker.output[-500:].strip()}")

    def _be_patient(self, airport: str) -> None:
        link, now_s = self._link(airport), time.monotonic()
        if link.is_up or any(outage.airport == airport and outage.is_on for outage in self.outages):
            self._up_s[airport] = now_s
        elif now_s > self._up_s[airport] + PATIENCE_S:
            raise DemoError(f"the link from {airport} to hq is not running: {link.status} {link.error}".strip())

    def _confirmed(self, airport: str) -> int:
        return self._publishers[airport].count if self._publishers else 0

    def _link(self, airport: str) -> LinkReport:
        return self.links.get(airport, LinkReport())

    def _state(self, airport: str) -> str:
        link = self._link(airport)
        return "killed" if airport in self._dead else "linked" if link.is_up else link.status

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _cut(self) -> None:
        self._relay.tell("cut")

    def _restore(self) -> None:
        self._relay.tell("restore")

    def _kill(self) -> None:
        self._dead.add(KILLED)
        self._brokers.airports[KILLED].kill()

    def _restart(self) -> None:
        try:
            self._brokers.airports[KILLED].start()
        except ProcessFailed as error:
            raise DemoError(f"the broker {KILLED} did not restart: {error}") from error
        self._dead.discard(KILLED)
