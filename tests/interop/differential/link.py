"""One connection of a script: sends steps, and collects the broker's answers, channel by channel."""

from __future__ import annotations

import time
import uuid
from typing import Any

from ...conformance.raw import (
    BODY,
    DEADLINE_S,
    HEADER,
    HEARTBEAT,
    METHOD,
    WITH_CONTENT,
    Eof,
    Frame,
    RawClient,
    encode_method,
    frame,
)
from .contents import properties_of
from .script import CHANNELS, SETTLEMENTS, Step

# channels beside the script's own, to probe queues
PROBE = 10
PROBES = 12


class Tags:
    """The state of a channel of the script."""

    def __init__(self) -> None:
        self.open: list[int] = []  # delivery tags to settle
        self.auto: set[str] = set()  # consumers without acknowledgements
        self.is_confirming = False
        self.published = 0
        self.unconfirmed: set[int] = set()  # publishes without a confirm

    def forget(self, tag: int, multiple: bool) -> None:
        """Remove a settled delivery, or all up to it."""
        self.open = [each for each in self.open if (each > tag if multiple else each != tag)]


class Link:
    """A connection that reopens closed channels and sockets as soon as the closing has been noted."""

    def __init__(self, url: str, frame_max: int) -> None:
        self.url = url
        self.frame_max = frame_max
        # (channel, frame) since the last question; channel 0 is the connection, "eof" is a closed socket
        self.seen: list[tuple[int, Frame]] = []
        self._questions = 0
        self.open()

    def open(self) -> None:
        """Connect, open all channels, and declare the marker queue, which shows that the broker noticed a lost
        socket."""
        self.client = RawClient.open(self.url, channels=0, frame_max=self.frame_max)
        self.marker = f"marker-{uuid.uuid4().hex}"
        self.tags = {number: Tags() for number in CHANNELS}
        self._asked: dict[int, str] = {}
        self._reopening: set[int] = set()
        self._probes: dict[int, str] = {}
        self.answers: dict[str, tuple[int, ...]] = {}
        numbers = [*CHANNELS, *range(PROBE, PROBE + PROBES)]
        self.client.socket.sendall(
            b"".join(frame(METHOD, number, encode_method("channel.open")) for number in numbers))
        for _ in numbers:
            self.client.read("channel.open-ok")
        self.client.call("queue.declare", PROBE, queue=self.marker, exclusive=True)

    # -- sending

    def say(self, step: Step, args: dict[str, Any], properties: dict[str, Any], bodies: list[bytes]) -> None:
        """Send the frames of a step, its values resolved, in one piece."""
        self.step = step
        if step.does == "frame":
            self._send(frame(args["kind"], args["channel"], args["payload"]))
            return
        tags = self.tags.get(step.channel, Tags())
        if step.does in SETTLEMENTS:
            tags.forget(args["delivery_tag"], args.get("multiple", False))
        method = encode_method(step.does, **args)
        if step.does == "basic.publish":
            self._send(b"".join(self.client.content(step.channel, method, body, properties) for body in bodies))
            if tags.is_confirming:
                tags.unconfirmed.update(range(tags.published + 1, tags.published + 1 + len(bodies)))
                tags.published += len(bodies)
            return
        self._send(frame(METHOD, step.channel, method))
        if step.does == "confirm.select":
            tags.is_confirming = True
        elif step.does == "basic.consume" and step.args.get("no_ack"):
            tags.auto.add(step.args.get("consumer_tag", ""))
        elif step.does in ("channel.close", "tx.commit"):
            self._asked[step.channel] = "nothing: it is asked when it has answered this; before, that would be an error"

    def lose(self) -> None:
        self.client.socket.close()

    def leave(self) -> None:
        """Close the socket at the end."""
        self.client.socket.close()

    # -- receiving

    def ask(self) -> None:
        """Send a question on all channels of the script; its answer shows that all earlier methods are done."""
        for number in CHANNELS:
            if number not in self._asked:
                self._ask(number)

    def hear(self) -> None:
        """Return when all questions are answered and all publishes confirmed."""
        self._hear()

    def probe(self, names: list[str]) -> dict[str, tuple[int, ...]]:
        """Return the state of these queues: (messages, consumers), or the code of an error."""
        self.answers = {}
        batch = b""
        for number, name in enumerate(names, PROBE):
            self._probes[number] = name
            batch += frame(METHOD, number, encode_method("queue.declare", queue=name, passive=True))
        self._send(batch)
        self._hear()
        return self.answers

    def is_known(self, marker: str) -> bool:
        """Whether the broker still has the marker queue of another link, whose connection was lost."""
        method = encode_method("basic.publish", routing_key=marker, mandatory=True)
        self._send(self.client.content(PROBE, method, b"", {}))
        self._method("basic.cancel", PROBE, consumer_tag="known?")
        is_back = False
        while True:
            got = self._read()
            if got.channel != PROBE:
                self._take(got)
            elif got.name == "basic.return":
                is_back = True
            else:
                return not is_back

    def renew(self) -> None:
        """Open new channels for the next script."""
        assert self.client.largest_frame <= self.frame_max
        for number in CHANNELS:
            self.client.send("channel.close", number)
        for name in ("channel.close-ok", "channel.open-ok"):
            left = set(CHANNELS)
            while left:
                got = self._read()
                if got.name == name:
                    left.remove(got.channel)
            if name == "channel.close-ok":
                for number in CHANNELS:
                    self.client.send("channel.open", number)
        self.tags = {number: Tags() for number in CHANNELS}

    def delete(self, queues: list[str], exchanges: list[str], bindings: list[dict[str, Any]]) -> None:
        """Delete those of these that exist and may be deleted on this connection."""
        for name in queues:
            self._try("queue.delete", queue=name)
        for name in exchanges:
            self._try("exchange.delete", exchange=name)
        for binding in bindings:
            self._try("exchange.unbind", **binding)

    def _try(self, name: str, **args: Any) -> None:
        self.client.send(name, PROBE, **args)
        if self.client.read(f"{name}-ok", "channel.close").name == "channel.close":
            self.client.send("channel.close-ok", PROBE)
            self.client.call("channel.open", PROBE)

    def _ask(self, number: int) -> None:
        # cancelling an unknown consumer is answered in every state of a channel, and changes nothing
        self._questions += 1
        self._asked[number] = f"question-{self._questions}"
        self._method("basic.cancel", number, consumer_tag=self._asked[number])

    def _hear(self) -> None:
        while self._asked or self._probes or any(tags.unconfirmed for tags in self.tags.values()):
            try:
                self._take(self._read())
            except Eof:
                self.seen.append((0, Frame(0, 0, "eof")))
                self._again()
            except TimeoutError:
                waiting = [*self._asked.values(), *self._probes.values()]
                missing = [sorted(tags.unconfirmed) for tags in self.tags.values()]
                raise AssertionError(f"no answer to {waiting}; publishes not confirmed: {missing}") from None

    def _again(self) -> None:
        self.client.socket.close()
        was_asking = bool(self._probes)
        names = list(self._probes.values())
        self.open()
        for number in CHANNELS:
            self._ask(number)
        if was_asking:
            for number, name in enumerate(names, PROBE):
                self._probe(number, name)

    def _probe(self, number: int, name: str) -> None:
        self._probes[number] = name
        self._method("queue.declare", number, queue=name, passive=True)

    def _take(self, got: Frame) -> None:
        number = got.channel
        if got.name == "connection.close":
            self.seen.append((0, got))
            self._method("connection.close-ok", 0)
            self._expect_end()
            self._again()
        elif got.name == "connection.close-ok":
            self.seen.append((0, got))
            self._again()  # the client must close the socket
        elif number >= PROBE:
            self._take_probe(got)
        elif got.name == "channel.close" or (got.name == "channel.close-ok" and number not in self._reopening):
            self.seen.append((number, got))
            self._open_again(number, got.name == "channel.close")
        elif got.name == "channel.open-ok" and number in self._reopening:
            self._reopening.discard(number)
        elif got.name == "basic.cancel-ok" and got["consumer_tag"] == self._asked.get(number):
            del self._asked[number]
        elif got.name in ("basic.ack", "basic.nack"):
            self._take_confirm(number, got)
        else:
            if got.name == "tx.commit-ok":
                self._ask(number)
            self._note_tag(self.tags.get(number, Tags()), got)
            self.seen.append((number, got))

    def _note_tag(self, tags: Tags, got: Frame) -> None:
        if got.name == "basic.deliver":
            is_open = got["consumer_tag"] not in tags.auto
        else:
            is_open = got.name == "basic.get-ok" and not self.step.args.get("no_ack")
        if is_open:
            tags.open.append(got["delivery_tag"])
        elif got.name == "basic.consume-ok" and self.step.args.get("no_ack"):
            tags.auto.add(got["consumer_tag"])

    def _take_probe(self, got: Frame) -> None:
        if got.name == "queue.declare-ok":
            self.answers[self._probes.pop(got.channel)] = (got["message_count"], got["consumer_count"])
        elif got.name == "channel.close":
            self.answers[self._probes.pop(got.channel)] = (got["reply_code"],)
            self._method("channel.close-ok", got.channel)
            self._method("channel.open", got.channel)
        else:
            assert got.name == "channel.open-ok", got

    def _open_again(self, number: int, must_answer: bool) -> None:
        self.tags[number] = Tags()
        if must_answer:
            self._method("channel.close-ok", number)
        self._reopening.add(number)
        self._method("channel.open", number)
        self._ask(number)

    def _take_confirm(self, number: int, got: Frame) -> None:
        tags, tag = self.tags[number], got["delivery_tag"]
        covered = {each for each in tags.unconfirmed if each <= tag} if got["multiple"] else {tag} & tags.unconfirmed
        if not covered:
            # about a channel that is not open: a defect, unless the other broker does the same
            self.seen.append((number, got))
        for each in covered:
            tags.unconfirmed.discard(each)
            self.seen.append((number, Frame(METHOD, number, got.name, {"delivery_tag": each})))

    def _send(self, data: bytes) -> None:
        try:
            self.client.socket.sendall(data)
        except OSError:
            pass  # the broker closed the socket; earlier frames are still to be read

    def _method(self, name: str, number: int, **args: Any) -> None:
        self._send(frame(METHOD, number, encode_method(name, **args)))

    def _expect_end(self) -> None:
        try:
            while True:
                self._read()
        except Eof:
            pass

    def _read(self) -> Frame:
        deadline = time.monotonic() + DEADLINE_S
        client = self.client
        got = client.read_frame(deadline)
        while got.kind == HEARTBEAT:
            got = client.read_frame(deadline)
        assert got.kind == METHOD, f"frame kind {got.kind} without a method"
        if got.name in WITH_CONTENT:
            header = client.read_frame(deadline)
            assert (header.kind, header.channel) == (HEADER, got.channel)
            size, got.properties = properties_of(header.body)
            while len(got.body) < size:
                part = client.read_frame(deadline)
                assert (part.kind, part.channel) == (BODY, got.channel)
                got.body += part.body
        return got
