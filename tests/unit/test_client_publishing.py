"""The publishing hot path makes the same frames as the grammar's table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.protocol.publishing import PublishEncoder
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

SHORT = st.text(max_size=20)
PROPERTIES = st.none() | st.builds(
    Properties,
    content_type=st.none() | SHORT,
    headers=st.none() | st.dictionaries(SHORT, st.integers(-5, 5) | SHORT, max_size=3),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    message_id=st.none() | SHORT,
    timestamp=st.none() | st.integers(0, 1 << 40),
)


def by_table(
    channel: int, frame_max: int, body: bytes, exchange: str, key: str, properties: Properties | None, mandatory: bool
) -> bytes:
    publish = method_frame(
        channel, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key, mandatory=mandatory, immediate=False
    )
    return publish + content_frames(channel, encode_header(properties or Properties(), len(body)), body, frame_max)


@given(st.lists(st.tuples(st.binary(max_size=100), SHORT, SHORT, PROPERTIES, st.booleans()), max_size=8))
def test_frames_are_those_of_the_table(messages: list[tuple[bytes, str, str, Properties | None, bool]]) -> None:
    encoder = PublishEncoder(3, 64)
    for body, exchange, key, properties, mandatory in messages + messages:
        expected = by_table(3, 64, body, exchange, key, properties, mandatory)
        assert encoder.encode(body, exchange, key, properties, mandatory) == expected


def test_properties_that_changed_are_encoded_again() -> None:
    encoder = PublishEncoder(1, 131072)
    properties = Properties(message_id="1")
    first = encoder.encode(b"x", "", "k", properties, False)
    assert encoder.encode(b"x", "", "k", properties, False) == first
    properties.message_id = "2"
    assert encoder.encode(b"x", "", "k", properties, False) == by_table(1, 131072, b"x", "", "k", properties, False)
    properties.headers = {"n": 1}
    encoder.encode(b"x", "", "k", properties, False)
    properties.headers["n"] = 2
    assert encoder.encode(b"x", "", "k", properties, False) == by_table(1, 131072, b"x", "", "k", properties, False)


def test_a_key_over_255_octets_is_refused() -> None:
    with pytest.raises(ValueError, match="255"):
        PublishEncoder(1, 131072).encode(b"x", "", "k" * 256, None, False)


def test_no_more_than_a_bounded_number_of_routes_is_kept() -> None:
    encoder = PublishEncoder(1, 131072)
    for number in range(10_000):
        encoder.encode(b"x", "", f"k{number}", None, False)
    assert len(encoder._routes) <= 4096
