"""Encoding and counting of many frames at a time: slices with a stride do in C what a loop would do for each message.

A batch is encoded once; before each send only the times in its bodies are set, by eight slices for all of them. Equal
deliveries of one consumer have the same length, so a run of them is recognized by a few slices.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.delivering import CONTENT_HEAD, DELIVER_HEAD
from leveret.client.protocol.publishing import PublishEncoder
from leveret.wire import grammar
from leveret.wire.properties import Properties

TIME: Final = struct.Struct(">Q")
ACK: Final = struct.Struct(">BHIIQB")
ACK_OCTETS: Final = 21
SAMPLES_MAX: Final = 8
"""How many times are sampled in one run of deliveries; each sample counts for several messages."""
OVERHEAD: Final = 8


class FrameBatch:
    """Equal messages as encoded frames."""

    def __init__(
        self, channel: int, frame_max: int, exchange: str, key: str, body: bytes, properties: Properties, count: int
    ) -> None:
        one = PublishEncoder(channel, frame_max).encode(body, exchange, key, properties, False)
        self.count = count  # number of messages
        self.octets = len(one)  # bytes per message
        self.body_at = one.index(body[: frame_max - OVERHEAD]) if body else 0  # offset of the body in a message
        self._frames = bytearray(one * count)

    def stamped(self, time_ns: int, count: int = 0) -> bytes:
        """Return the frames of the first `count` messages (0: all), with this time in the first bytes of each body."""
        frames, octets = self._frames, self.octets
        for index, octet in enumerate(TIME.pack(time_ns)):
            frames[self.body_at + index :: octets] = bytes((octet,)) * self.count
        return bytes(frames) if not count else bytes(memoryview(frames)[: count * octets])

    def copied(self, data: bytes, start: int, stride: int, count: int) -> bytes:
        """Return `count` messages with the times of a run of deliveries, whose first body begins at `start`."""
        frames, octets = self._frames, self.octets
        if count > self.count:
            self._frames = frames = frames[:octets] * count
            self.count = count
        for index in range(TIME.size):
            place = self.body_at + index
            frames[place : place + (count - 1) * octets + 1 : octets] = data[
                start + index : start + index + (count - 1) * stride + 1 : stride
            ]
        return bytes(memoryview(frames)[: count * octets])


# called with data, offset of the first body, octets from one to the next, and count
OnRun = Callable[[bytes, int, int, int], None]


class Scanner:
    """A reader of deliveries that replaces the client's own, and counts runs of them at once."""

    def __init__(self, on_run: OnRun) -> None:
        self.delivered = 0  # number of deliveries
        self.last_tag = 0  # delivery tag of the last one
        self.confirmed = 0  # all publishes up to this number are confirmed
        self.refused = 0  # number of publishes refused by basic.nack
        self._on_run = on_run
        self._singles: set[int] = set()

    def read(self, channels: Mapping[int, ChannelCore[Any]], data: bytes, start: int) -> int:
        """Consume deliveries and confirms; return the offset of the first frame that is other or incomplete."""
        end = len(data)
        while end - start >= ACK_OCTETS:
            kind, number, _, key = DELIVER_HEAD.unpack_from(data, start)
            if kind != 1:
                break
            if key == grammar.BASIC_DELIVER.key:
                channel = channels.get(number)
                if channel is None or not channel.is_between_contents:
                    break
                after = self._run(data, start, end)
                if after == start:
                    break
                start = after
            elif key in (grammar.BASIC_ACK.key, grammar.BASIC_NACK.key):
                _, _, _, _, tag, flags = ACK.unpack_from(data, start)
                self._answer(tag, bool(flags & 1), key == grammar.BASIC_ACK.key)
                start += ACK_OCTETS
            else:
                break
        return start

    def took(self, delivery: Any) -> None:
        """Count a delivery that arrived in pieces, through the client's general path."""
        self.delivered += 1
        self.last_tag = delivery.delivery_tag
        self._on_run(delivery.body, 0, len(delivery.body), 1)

    def _run(self, data: bytes, start: int, end: int) -> int:
        """Count the deliveries that are equal to the first, and return the offset after them."""
        size = int.from_bytes(data[start + 3 : start + 7])
        head = start + size + OVERHEAD
        if head + CONTENT_HEAD.size > end:
            return start
        _, _, header_size, _, _, body_size = CONTENT_HEAD.unpack_from(data, head)
        body = after = head + header_size + OVERHEAD
        missing = body_size
        while missing:
            if after + 7 > end:
                return start
            frame = int.from_bytes(data[after + 3 : after + 7])
            missing -= frame
            after += frame + OVERHEAD
        if after > end:
            return start
        stride = after - start
        count = (end - start) // stride
        if count > 1 and not self._are_alike(
            data, start, stride, count, (0, 6, head - start, body - start, stride - 1)
        ):
            count = 1
        last = start + (count - 1) * stride
        self.delivered += count
        tag_at = last + 12 + data[last + 11]
        self.last_tag = int.from_bytes(data[tag_at : tag_at + 8])
        if body_size:
            self._on_run(data, body + 7, stride, count)
        return int(start + count * stride)

    @staticmethod
    def _are_alike(data: bytes, start: int, stride: int, count: int, places: tuple[int, ...]) -> bool:
        """Whether all frames of the run begin and end where those of its first delivery do."""
        stop = start + (count - 1) * stride + 1
        return all(
            data[start + place : stop + place : stride] == data[start + place : start + place + 1] * count
            for place in places
        )

    def _answer(self, tag: int, multiple: bool, accepted: bool) -> None:
        if not accepted:
            self.refused += tag - self.confirmed if multiple else 1
        if multiple:
            self._singles = {single for single in self._singles if single > tag}
            self.confirmed = max(self.confirmed, tag)
        else:
            self._singles.add(tag)
        while self.confirmed + 1 in self._singles:
            self.confirmed += 1
            self._singles.remove(self.confirmed)


def sampled(data: bytes, start: int, stride: int, count: int) -> list[tuple[int, int]]:
    """Return sampled times in the bodies of a run, each with the number of messages that it stands for."""
    step = -(-count // SAMPLES_MAX)
    return [
        (TIME.unpack_from(data, start + index * stride)[0], min(step, count - index)) for index in range(0, count, step)
    ]
