"""A link's window against a model of the upstream's channel: only settled messages are acknowledged."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.federation.window import Window
from leveret.wire import grammar
from leveret.wire.frames import FrameReader
from leveret.wire.method import Method, decode_method


def said(window: Window, channel: int = 7) -> list[Method]:
    """Return the methods that the window sends to the upstream."""
    reader = FrameReader(0)
    reader.feed(window.take())
    found: list[Method] = []
    while (frame := reader.next()) is not None:
        assert frame.channel == channel
        found.append(decode_method(frame.payload))
    return found


def told(methods: list[Method]) -> list[tuple[str, int, bool]]:
    return [
        (method.name, method.number("delivery_tag"), method.flag("multiple"))
        for method in methods
        if method.spec is not grammar.BASIC_NACK
    ]


def window_of(count: int) -> Window:
    window = Window(7)
    for tag in range(1, count + 1):
        assert window.publish(tag) == tag
    return window


def test_many_confirms_are_one_acknowledgement() -> None:
    window = window_of(1000)
    for number in range(1, 1001):
        window.settle(number, False, True)
    assert told(said(window)) == [("basic.ack", 1000, True)]
    assert said(window) == []


def test_one_confirm_is_one_acknowledgement() -> None:
    window = window_of(2)
    window.settle(1, False, True)
    assert told(said(window)) == [("basic.ack", 1, False)]
    assert window.unacknowledged() == 1


def test_a_later_confirm_waits_for_the_earlier_one() -> None:
    window = window_of(3)
    window.settle(2, False, True)
    assert said(window) == []
    window.settle(1, False, True)
    assert told(said(window)) == [("basic.ack", 2, True)]


def test_what_is_dropped_is_acknowledged_in_its_turn() -> None:
    window = window_of(1)
    window.drop(2)
    assert window.publish(3) == 2
    window.drop(4)
    assert said(window) == []
    window.settle(1, False, True)
    assert told(said(window)) == [("basic.ack", 2, True)]
    window.settle(2, False, True)
    assert told(said(window)) == [("basic.ack", 4, True)]


def test_a_refused_message_goes_back_when_it_is_given_back() -> None:
    window = window_of(3)
    window.settle(2, False, False)
    window.settle(3, True, True)
    assert window.has_refused()
    assert told(said(window)) == [("basic.ack", 1, False)]
    window.requeue()
    nack, ack = said(window)
    assert (nack.spec, nack.number("delivery_tag"), nack.flag("requeue")) == (grammar.BASIC_NACK, 2, True)
    assert not nack.flag("multiple")
    assert (ack.spec, ack.number("delivery_tag")) == (grammar.BASIC_ACK, 3)
    assert not window.has_refused()


def test_what_is_dead_lettered_is_not_requeued() -> None:
    window = window_of(1)
    window.reject(2)
    (nack,) = said(window)
    assert (nack.spec, nack.number("delivery_tag"), nack.flag("requeue")) == (grammar.BASIC_NACK, 2, False)
    window.settle(1, False, True)
    assert told(said(window)) == [("basic.ack", 1, False)]  # an unknown tag would close the channel
    assert window.unacknowledged() == 0


def test_what_no_broker_would_take_is_not_requeued() -> None:
    window = window_of(3)
    window.condemn(2)
    (nack,) = said(window)
    assert (nack.spec, nack.number("delivery_tag"), nack.flag("requeue")) == (grammar.BASIC_NACK, 2, False)
    window.settle(2, True, False)  # the broker refuses this message and the one before
    assert window.has_refused()
    window.settle(3, False, True)
    window.requeue()
    assert [(each.name, each.number("delivery_tag")) for each in said(window)] == [("basic.nack", 1), ("basic.ack", 3)]


def test_answers_that_answer_nothing_are_ignored() -> None:
    window = window_of(2)
    window.settle(3, True, True)
    window.settle(0, False, True)
    assert said(window) == []
    window.settle(2, True, True)
    window.settle(1, False, False)
    assert told(said(window)) == [("basic.ack", 2, True)]
    assert not window.has_refused()


class Upstream:
    """The other side of the channel, with the state of each tag."""

    def __init__(self) -> None:
        self.state: dict[int, str] = {}

    def hear(self, methods: list[Method]) -> None:
        for method in methods:
            tag = method.number("delivery_tag")
            word = "acked"
            if method.spec is grammar.BASIC_NACK:
                word = "requeued" if method.flag("requeue") else "rejected"
            if method.flag("multiple"):
                assert self.state[tag] == "open", "an unknown tag closes the channel, even where others are covered"
                for each, state in self.state.items():
                    if each <= tag and state == "open":
                        self.state[each] = word
            else:
                assert self.state[tag] == "open", "an unknown tag closes the channel"
                self.state[tag] = word


steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["publish", "publish", "drop", "reject", "take", "requeue"]), st.just(0), st.just(0)
        ),
        st.tuples(st.sampled_from(["settle", "settle", "condemn"]), st.integers(0, 30), st.integers(0, 3)),
    ),
    max_size=60,
)


@settings(max_examples=500)
@given(steps)
def test_any_order_of_answers(story: list[tuple[str, int, int]]) -> None:
    window = Window(7)
    upstream = Upstream()
    wanted: dict[int, str] = {}  # expected state by tag; "open" includes refused messages that are not requeued yet
    tags: list[int] = []  # tag by number of the publish, from 0
    tag = 0

    def check() -> None:
        upstream.hear(said(window))
        stuck = False
        for each, word in wanted.items():
            stuck = stuck or word in ("open", "refused")
            if word in ("open", "refused"):
                assert upstream.state[each] == "open"
            elif word in ("requeued", "rejected"):
                assert upstream.state[each] == word
            else:
                assert upstream.state[each] == ("open" if stuck else "acked")

    for name, number, flags in story:
        if name in ("publish", "drop", "reject"):
            tag += 1
            upstream.state[tag] = "open"
            if name == "publish":
                tags.append(tag)
                assert window.publish(tag) == len(tags)
            elif name == "drop":
                window.drop(tag)
            else:
                window.reject(tag)
            wanted[tag] = {"publish": "open", "drop": "acked", "reject": "rejected"}[name]
        elif name == "settle":
            multiple, accepted = flags & 1 == 1, flags & 2 == 2
            if not 0 < number <= len(tags) or all(wanted[each] != "open" for each in tags[:number]):
                continue  # a broker answers only what was published
            window.settle(number, multiple, accepted)
            for each in tags[:number] if multiple else [tags[number - 1]]:
                if wanted[each] == "open":
                    wanted[each] = "acked" if accepted else "refused"
        elif name == "condemn":
            if 0 < number <= len(tags) and wanted[tags[number - 1]] == "open":
                window.condemn(number)
                wanted[tags[number - 1]] = "rejected"
        elif name == "requeue":
            window.requeue()
            wanted.update({each: "requeued" for each, word in wanted.items() if word == "refused"})
        else:
            check()
    check()
    for number, each in enumerate(tags, 1):
        if wanted[each] == "open":
            window.settle(number, False, True)
    window.requeue()
    upstream.hear(said(window))
    assert "open" not in upstream.state.values()
    assert window.unacknowledged() == 0
