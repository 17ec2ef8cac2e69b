"""Groups of a stream's messages, and chunks of groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.streams.chunk import ChunkGroup, decode, encode

GROUPS = st.lists(
    st.tuples(
        st.integers(0, 1 << 62), st.binary(max_size=300), st.integers(1, 40), st.integers(1, 5),
        st.integers(0, 255),
    ),
    max_size=8,
)  # fmt: skip


def build(first: int, parts: list[tuple[int, bytes, int, int, int]]) -> list[ChunkGroup]:
    groups: list[ChunkGroup] = []
    for time_us, key, size, count, octet in parts:
        data = b"".join(bytes([(octet + index) % 256]) * size for index in range(count))
        groups.append(ChunkGroup(first, time_us, key, data, size, count, 7))
        first += count
    return groups


def shown(groups: list[ChunkGroup]) -> list[tuple[int, int, bytes, bytes, int, int]]:
    return [(g.offset, g.time_us, g.key, g.data, g.size, g.count) for g in groups]


@given(GROUPS, st.integers(0, 1 << 62))
def test_what_is_decoded_is_what_was_encoded(parts: list[tuple[int, bytes, int, int, int]], first: int) -> None:
    groups = build(first, parts)
    payload = encode(groups)
    assert len(payload) == sum(int(group.octets()) for group in groups)
    again = decode(payload, first)
    assert shown(again) == shown(groups)
    assert all(group.id == 0 for group in again), "from a file: the journal has nothing of it"


def test_groups_of_one_route_that_follow_each_other_share_its_key() -> None:
    """Consumers compare keys by identity."""
    groups = decode(encode(build(0, [(1, b"ab", 3, 1, 1), (2, b"ab", 4, 1, 1), (3, b"c", 4, 1, 1)])), 0)
    assert groups[0].key is groups[1].key
    assert groups[2].key == b"c"


def test_a_content_is_one_of_the_group() -> None:
    (group,) = build(10, [(1, b"k", 3, 4, ord("a"))])
    assert [group.content(index) for index in range(4)] == [b"aaa", b"bbb", b"ccc", b"ddd"]
    assert group.end == 14
