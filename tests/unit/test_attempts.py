"""Failed logins: who has to wait, for how long, and what is remembered of whom."""

from __future__ import annotations

from itertools import pairwise

from leveret.broker.attempts import ADDRESSES_MAX, FORGET_US, FREE, STEP_US_MAX, WAIT_US_MAX, Attempts

from .support import SECOND_US

NOW_US = 1_700_000_000 * SECOND_US


def failed(attempts: Attempts, count: int, address: str = "10.0.0.1", now_us: int = NOW_US) -> None:
    for _ in range(count):
        attempts.done(address, "amqp091", False, now_us)


def test_the_first_failures_cost_nothing() -> None:
    attempts = Attempts()
    failed(attempts, FREE - 1)
    assert attempts.wait_us("10.0.0.1", NOW_US) == 0
    failed(attempts, 1)
    assert attempts.wait_us("10.0.0.1", NOW_US) > 0


def test_each_failure_makes_the_next_wait_longer_up_to_a_limit() -> None:
    attempts, now_us, waits = Attempts(), NOW_US, []
    failed(attempts, FREE, now_us=now_us)
    for _ in range(12):
        wait_us = attempts.wait_us("10.0.0.1", now_us)
        waits.append(wait_us)
        now_us += wait_us
        failed(attempts, 1, now_us=now_us)
    assert waits[:4] == sorted(set(waits[:4]))
    assert waits[-1] == max(waits) == STEP_US_MAX


def test_attempts_of_one_address_wait_in_line() -> None:
    attempts = Attempts()
    failed(attempts, FREE + 1)
    waits = [attempts.wait_us("10.0.0.1", NOW_US) for _ in range(4)]
    steps = [later - earlier for earlier, later in pairwise(waits)]
    assert len(set(steps)) == 1
    assert steps[0] > 0


def test_who_would_wait_for_too_long_is_refused_unseen() -> None:
    attempts = Attempts()
    failed(attempts, FREE + 1)
    waits = [attempts.wait_us("10.0.0.1", NOW_US) for _ in range(1000)]
    assert -1 in waits
    assert set(waits[waits.index(-1) :]) == {-1}
    assert attempts.wait_us("10.0.0.1", NOW_US + WAIT_US_MAX) >= 0  # the line has become shorter


def test_others_do_not_wait() -> None:
    attempts = Attempts()
    failed(attempts, 100)
    assert attempts.wait_us("10.0.0.2", NOW_US) == 0


def test_a_success_and_a_long_time_make_up_for_failures() -> None:
    attempts = Attempts()
    failed(attempts, FREE + 5)
    attempts.done("10.0.0.1", "amqp091", True, NOW_US)
    assert attempts.wait_us("10.0.0.1", NOW_US) == 0
    failed(attempts, FREE + 5)
    assert attempts.wait_us("10.0.0.1", NOW_US + FORGET_US + 1) == 0
    failed(attempts, 1, now_us=NOW_US + FORGET_US + 1)
    assert attempts.wait_us("10.0.0.1", NOW_US + FORGET_US + 1) == 0


def test_one_machines_many_addresses_are_one() -> None:
    attempts = Attempts()
    for number in range(FREE + 1):
        failed(attempts, 1, f"2001:db8:1:2::{number:x}")
    assert attempts.wait_us("2001:db8:1:2:3:4:5:6", NOW_US) > 0
    assert attempts.wait_us("2001:db8:1:3::1", NOW_US) == 0
    assert attempts.wait_us("no:address", NOW_US) == 0


def test_memory_is_bounded_and_who_failed_last_is_remembered() -> None:
    attempts = Attempts()
    failed(attempts, FREE, "first")
    for number in range(ADDRESSES_MAX + 50):
        failed(attempts, FREE, f"host-{number}")
        if number == ADDRESSES_MAX // 2:
            failed(attempts, 1, "again")
            failed(attempts, FREE, "again")
    assert len(attempts._failures) == ADDRESSES_MAX
    assert attempts.wait_us("first", NOW_US) == 0
    assert attempts.wait_us("again", NOW_US) > 0
    assert attempts.wait_us(f"host-{ADDRESSES_MAX + 49}", NOW_US) > 0


def test_attempts_are_counted_by_protocol() -> None:
    attempts = Attempts()
    failed(attempts, 2)
    attempts.done("10.0.0.1", "http", True, NOW_US)
    assert (attempts.failed, attempts.succeeded) == ({"amqp091": 2}, {"http": 1})
    attempts.reset()
    assert (attempts.failed, attempts.succeeded) == ({}, {})
