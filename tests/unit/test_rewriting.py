"""A link's changes to a message's header, compared with the codec: all other octets stay."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.federation.rewriting import INVALID, LinkOrigin, Rewriter
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import Properties, decode_header, encode_header, property_spans, replace_property
from leveret.wire.table import Value, encode_short, encode_table, encode_value, split_table

from .test_wire_bytes import tables, values

ORIGIN = LinkOrigin("amqp://up:5672/%2F", "flights", "rabbit@up", "north")
HOP: dict[str, Value] = {
    "uri": "amqp://up:5672/%2F",
    "exchange": "flights",
    "redelivered": False,
    "cluster-name": "rabbit@up",
    "vhost": "north",
}
LIFE = b"\x01lives!\xff"
shorts = st.none() | st.text(max_size=20)
names = st.sampled_from(["x-received-from", "x-received-fro", "x-leveret-position", "x-invalid-headers", "CC", ""])
odd_tables = st.dictionaries(names, values, max_size=4)
hops = st.dictionaries(st.sampled_from(["cluster-name", "vhost", "uri"]), st.sampled_from(["down", "/", 1]), max_size=3)
travelled = st.fixed_dictionaries({"x-received-from": st.lists(hops | values, max_size=4)}, optional={"a": values})
properties = st.builds(
    Properties,
    content_type=shorts,
    content_encoding=shorts,
    headers=st.none() | tables | odd_tables | travelled,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=shorts,
    reply_to=shorts,
    expiration=shorts,
    message_id=shorts,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=shorts,
    user_id=shorts,
    app_id=shorts,
    cluster_id=shorts,
)


def rewriter(max_hops: int = 3, trusts_user_id: bool = False, has_positions: bool = True) -> Rewriter:
    return Rewriter(ORIGIN, "down", "/", max_hops, trusts_user_id, has_positions)


def rewritten(properties: Properties, rewriter: Rewriter, redelivered: bool = False) -> Properties | None:
    header = rewriter.rewrite(encode_header(properties, 5), redelivered)
    return decode_header(header)[0] if header else None


def positioned(header: bytes, id: int) -> bytes:
    """Return the header that an upstream sends to a link with positions: the position is the first header."""
    headers = b"\0\0\0\0"
    found = decode_header(header)[0].headers
    if found is not None:
        start, stop = next((start, stop) for name, start, stop in property_spans(header) if name == "headers")
        headers = header[start:stop]
    entry = encode_short("x-leveret-position") + encode_value(LIFE + id.to_bytes(8, "big"))
    size = len(entry) + len(headers) - 4
    return replace_property(header, "headers", size.to_bytes(4, "big") + entry + headers[4:])


def expected(properties: Properties, max_hops: int, redelivered: bool) -> list[tuple[bytes, bytes]] | None:
    """Return (name, encoded value) of the headers by the codec, in any order; None if the message is not forwarded."""
    hop = {**HOP, "redelivered": redelivered}
    headers = dict(properties.headers or {})
    old = headers.pop("x-received-from", [])
    if isinstance(old, list):
        if len(old) >= max_hops:
            return None
        if any(
            isinstance(each, dict) and (each.get("cluster-name"), each.get("vhost")) == ("down", "/") for each in old
        ):
            return None
        headers["x-received-from"] = [hop, *old]
    else:
        headers["x-received-from"] = [hop]
        headers["x-invalid-headers"] = {"x-received-from": [old]}
    return split_table(encode_table(headers))


@given(properties, st.integers(1, 4), st.booleans(), st.booleans(), st.none() | st.integers(0, 2**63 - 1))
@example(Properties(headers={}), 1, False, False, 7)
@example(Properties(content_type="a", content_encoding="b", user_id="me"), 1, True, True, None)
@example(Properties(headers={"x-received-from": []}, user_id="me", app_id="x"), 1, False, False, None)
@example(Properties(headers={"x-received-from": [{"cluster-name": "down", "vhost": "/"}]}), 2, False, False, 1)
def test_the_splice_is_what_the_codec_says(
    properties: Properties, max_hops: int, trusts: bool, redelivered: bool, id: int | None
) -> None:
    header = encode_header(properties, 5)
    each = rewriter(max_hops, trusts, has_positions=id is not None)
    found = each.rewrite(header if id is None else positioned(header, id), redelivered)
    assert each.id == (id or 0)
    if id:
        assert each.epoch == int.from_bytes(LIFE, "big", signed=True)
    wanted = expected(properties, max_hops, redelivered)
    if wanted is None:
        assert found == b""
        return
    start, stop = next((start, stop) for name, start, stop in property_spans(found) if name == "headers")
    assert sorted(split_table(found[start:stop])) == sorted(wanted)
    if not trusts:
        header = replace_property(header, "user_id", None)
    assert replace_property(found, "headers", None) == replace_property(header, "headers", None)


def test_octets_of_the_newest_hop_are_rabbitmqs() -> None:
    entry = ORIGIN.entry(True)
    fields = split_table(entry[1:])
    kinds = [(name.decode(), value[:1]) for name, value in fields]
    assert entry[:1] == b"F"
    assert kinds == [("uri", b"S"), ("exchange", b"S"), ("redelivered", b"t"), ("cluster-name", b"S"), ("vhost", b"S")]


def test_an_upstream_without_a_name() -> None:
    assert b"cluster-name" not in LinkOrigin("amqp://up", "x", "", "/").entry(False)


def test_the_newest_hop_comes_first_and_the_others_keep_their_octets() -> None:
    short = b"\x04hopss\x00\x01"  # a 16-bit integer, which leveret's codec would encode with 32 bits
    inner = b"F" + len(short).to_bytes(4, "big") + short
    field = b"\x0fx-received-fromA" + len(inner).to_bytes(4, "big") + inner
    header = encode_header(Properties(headers={}), 0)[:-4] + len(field).to_bytes(4, "big") + field
    found = rewriter().rewrite(header, False)
    assert found.endswith(inner)
    received = decode_header(found)[0].headers
    assert received == {"x-received-from": [HOP, {"hops": 1}]}


@pytest.mark.parametrize("value", ["text", 5, {"a": 1}, None, b"octets"])
def test_what_is_no_array_is_kept_where_rabbitmq_keeps_it(value: Value) -> None:
    found = rewritten(Properties(headers={"x-received-from": value, "a": 1}), rewriter())
    assert found is not None
    assert found.headers == {"x-received-from": [HOP], "a": 1, INVALID.decode(): {"x-received-from": [value]}}


def test_a_message_that_has_been_here_goes_no_further() -> None:
    seen: list[Value] = [{"cluster-name": "other", "vhost": "/"}, {"cluster-name": "down", "vhost": "/"}]
    assert rewritten(Properties(headers={"x-received-from": seen}), rewriter(9)) is None
    seen = [{"cluster-name": "down", "vhost": "other"}]
    assert rewritten(Properties(headers={"x-received-from": seen}), rewriter(9)) is not None


def test_a_message_goes_over_as_many_links_as_it_may() -> None:
    seen: list[Value] = [{"cluster-name": "a", "vhost": "/"}]
    assert rewritten(Properties(headers={"x-received-from": seen}), rewriter(1)) is None
    assert rewritten(Properties(headers={"x-received-from": seen}), rewriter(2)) is not None


def test_hops_that_were_seen_before_are_not_taken_for_others() -> None:
    each = rewriter(2)
    near: list[Value] = [{"cluster-name": "a", "vhost": "/"}]
    here: list[Value] = [{"cluster-name": "down", "vhost": "/"}]
    for _ in range(2):
        for redelivered in (False, True):
            for hops, wanted in ((near, [{**HOP, "redelivered": redelivered}, *near]), (here, None), ([], None)):
                found = rewritten(Properties(headers={"x-received-from": hops, "b": 2}), each, redelivered)
                if hops is here:
                    assert found is None
                elif hops is near:
                    assert found is not None
                    assert found.headers == {"x-received-from": wanted, "b": 2}


def test_a_user_id_goes_on_only_where_it_is_trusted() -> None:
    for trusts, wanted in ((False, None), (True, "me")):
        found = rewritten(Properties(user_id="me", app_id="a", cluster_id="c"), rewriter(trusts_user_id=trusts))
        assert found is not None
        assert (found.user_id, found.app_id, found.cluster_id) == (wanted, "a", "c")


def test_a_position_is_taken_only_from_an_upstream_that_gives_some() -> None:
    header = positioned(encode_header(Properties(headers={"a": 1}), 5), 7)
    ignoring = rewriter(has_positions=False)
    found = decode_header(ignoring.rewrite(header, False))[0]
    assert ignoring.id == 0
    assert found.headers is not None
    assert "x-leveret-position" in found.headers


def test_a_position_that_does_not_come_first_is_a_publishers_header() -> None:
    forged = Properties(headers={"a": 1, "x-leveret-position": LIFE + bytes(8)})
    each = rewriter()
    found = rewritten(forged, each)
    assert each.id == 0
    assert found is not None
    assert found.headers is not None
    assert found.headers["x-leveret-position"] == LIFE + bytes(8)


@given(st.binary(max_size=60))
def test_any_octets_are_rewritten_or_refused(tail: bytes) -> None:
    header = encode_header(Properties(), 5)[:12] + tail
    try:
        found = rewriter().rewrite(header, False)
    except ProtocolError:
        return
    assert not found or decode_header(found)[1] == 5
