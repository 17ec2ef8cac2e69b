"""Plays scripts on one broker, and records the result of each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...conformance.raw import Frame
from .link import Link
from .names import Names
from .script import CHANNELS, LINKS, Script, Step

QUEUES_MAX = 12
# these cause no deliveries, unless they fail and close the channel
QUIET = ("confirm.select", "tx.select", "channel.flow", "exchange.declare", "connection.update-secret")


@dataclass
class Seen:
    """The result of one step: the frames by channel ("1.2"; "1.0" is the connection), and the state by queue.

    Frames of different channels have no order, nor have deliveries and confirms among the others of one channel.
    """

    frames: dict[str, list[str]] = field(default_factory=dict)
    queues: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def show(self) -> str:
        """Return a text of one line per frame and queue."""
        lines = [f"{where}: {each}" for where, frames in self.frames.items() for each in frames]
        return "\n".join(lines + [f"{name}: {state}" for name, state in self.queues.items()])


class Player:
    """A broker with two connections. Everything that a script made is deleted after it."""

    def __init__(self, url: str) -> None:
        self.links = {number: Link(url, frame_max) for number, frame_max in LINKS.items()}
        self._forget()

    def _forget(self) -> None:
        self.names = Names()
        self.queues: list[str] = []
        # their state is not compared: RabbitMQ reports the messages late, and never the consumers
        self.streams: list[str] = []
        self.exchanges: list[str] = []
        self._bindings: list[dict[str, Any]] = []
        # How often queues are probed before all is quiet. RabbitMQ's queues answer before deliveries that came earlier
        # are handled, so the first answer only shows that they are being handled; each death takes one round more.
        self._passes = 2
        self._told = 0

    def play(self, script: Script) -> list[Seen]:
        """Return the results, step by step."""
        try:
            return [self.do(each) for each in script]
        finally:
            self.clean_up()

    def do(self, step: Step) -> Seen:
        """Do one step and wait until all its effects have happened."""
        if isinstance(step.args.get("delivery_tag"), str):
            found = self._found(step)
            if found is None:
                return Seen()
            step = found
        link = self.links[step.link]
        self._note(step)
        if step.does == "lose":
            self._lose(link)
        else:
            bodies = [f"{self._told:02}{index}".ljust(step.size, ".").encode() for index in range(step.count)]
            self._told += 1
            args = self.names.reveal(step.args)
            if step.does == "basic.consume" and "@ctag" in args.get("consumer_tag", ""):
                args = {**args, "consumer_tag": "of-my-own"}
            link.say(step, dict(args), self.names.reveal(step.properties), bodies)
        self._hear(link)
        return self._settle(step.does in QUIET)

    def _found(self, step: Step) -> Step | None:
        """Return a settlement with its actual tag, on the channel that has it; None if there is nothing to settle."""
        usual = [(number, channel) for number in LINKS for channel in CHANNELS]
        for number, channel in [(step.link, step.channel), *usual]:
            tags = self.links[number].tags[channel].open
            if tags:
                args = {**step.args, "delivery_tag": tags[-1] if step.args["delivery_tag"] == "@last" else tags[0]}
                return Step(f"{number}.{channel}", step.does, args)
        return None

    def _note(self, step: Step) -> None:
        """Note what the script makes: its queues are probed after each step, and everything is deleted at the end."""
        if step.does == "queue.declare":
            name = self.names.reveal(step.args.get("queue", "")).replace("\r", "").replace("\n", "")
            names = self.streams if _is_stream(step) else self.queues
            if name and name not in names and not name.startswith("amq.") and len(names) < QUEUES_MAX - 4:
                names.append(name)
            if "x-dead-letter-exchange" in step.args.get("arguments", {}):
                self._passes = 4
        elif step.does == "exchange.declare":
            name = step.args.get("exchange", "").replace("\r", "").replace("\n", "")
            if name not in self.exchanges and not name.startswith("amq."):
                self.exchanges.append(name)
        elif step.does == "exchange.bind":
            self._bindings.append({key: item for key, item in step.args.items() if key != "no_wait"})

    def _lose(self, link: Link) -> None:
        other = next(each for each in self.links.values() if each is not link)
        link.lose()
        try:
            while other.is_known(link.marker):
                pass
        finally:
            link.open()

    def _settle(self, is_quiet: bool) -> Seen:
        queues: dict[str, tuple[Any, ...]] = {}
        if not is_quiet or any(frame.name.endswith(".close") for link in self.links.values() for _, frame in link.seen):
            for _ in range(self._passes):
                queues = self._probe()
            self._hear(*self.links.values())
        seen = Seen(queues=queues)
        for number, link in self.links.items():
            found, link.seen = link.seen, []
            for channel, frame in found:
                seen.frames.setdefault(f"{number}.{channel}", []).append(frame)  # type: ignore[arg-type]
        for where in sorted(seen.frames):
            seen.frames[where] = self._ordered(seen.frames.pop(where))  # type: ignore[arg-type]
        return seen

    @staticmethod
    def _hear(*links: Link) -> None:
        for link in links:
            link.ask()
        for link in links:
            link.hear()

    def _probe(self) -> dict[str, tuple[Any, ...]]:
        names = [*self.queues, *self.names.of_kind("gen")][:QUEUES_MAX]
        answers = self.links[1].probe(names)
        locked = [name for name, answer in answers.items() if answer == (405,)]
        others = self.links[2].probe(locked) if locked else {}
        return {self.names.hide(name): answers[name] + others.get(name, ()) for name in names}

    def _ordered(self, frames: list[Frame]) -> list[str]:
        """Return answers in order, then cancellations, deliveries in order, and confirms by tag."""
        groups: dict[str, list[Frame]] = {"": [], "basic.cancel": [], "basic.deliver": [], "basic.ack": []}
        for each in frames:
            name = "basic.ack" if each.name == "basic.nack" else each.name
            groups[name if name in groups else ""].append(each)
        groups["basic.cancel"].sort(key=lambda each: str(each["consumer_tag"]))
        groups["basic.ack"].sort(key=lambda each: int(each["delivery_tag"]))
        return [self._shown(each) for group in groups.values() for each in group]

    def _shown(self, frame: Frame) -> str:
        if "headers" in frame.properties:
            frame.properties["headers"] = _sorted(frame.properties["headers"])  # clients ignore their order
        parts = [f"{key}={item!r}" for key, item in frame.args.items() if not key.startswith("reserved")]
        if frame.name in ("basic.deliver", "basic.get-ok", "basic.return"):
            body = frame.body.rstrip(b".")  # the filler
            parts += [repr(frame.properties), f"{body!r} and {len(frame.body) - len(body)} more"]
        return str(self.names.hide(f"{frame.name} {' '.join(parts)}"))

    def clean_up(self) -> None:
        """Close the script's channels and delete what it made."""
        names = [*self.queues, *self.streams, *self.names.of_kind("gen")]
        for link in self.links.values():
            link.renew()
        for link in self.links.values():
            link.delete(names, self.exchanges, self._bindings)
        for link in self.links.values():
            link.seen.clear()
        self._forget()

    def leave(self) -> None:
        for link in self.links.values():
            link.leave()


def _is_stream(step: Step) -> bool:
    """Whether the step declares a stream, unless it is refused."""
    return bool(step.args.get("durable")) and step.args.get("arguments", {}).get("x-queue-type") == "stream"


def _sorted(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _sorted(item[key]) for key in sorted(item)}
    return [_sorted(each) for each in item] if isinstance(item, list) else item
