"""Failed logins: who has to wait, for how long, and what is remembered."""

from __future__ import annotations

from itertools import pairwise

from leveret.broker.access.login_throttle import (
    ADDRESSES_MAX,
    FORGET_US,
    FREE,
    FREE_OF_ADDRESS,
    NAME_MAX,
    STEP_OF_ADDRESS_US,
    STEP_US,
    STEP_US_MAX,
    USERS_MAX,
    WAIT_US_MAX,
    LoginThrottle,
)

from .support import SECOND_US

NOW_US = 1_700_000_000 * SECOND_US
HOST = "10.0.0.1"


def failed(attempts: LoginThrottle, count: int, address: str = HOST, user: str = "u", now_us: int = NOW_US) -> None:
    for _ in range(count):
        attempts.done(address, user, "amqp091", False, now_us)


def sprayed(attempts: LoginThrottle, count: int = FREE_OF_ADDRESS, address: str = HOST, now_us: int = NOW_US) -> None:
    """Try one password with `count` users."""
    for number in range(count):
        failed(attempts, 1, address, f"user-{number}", now_us)


def test_the_first_failures_cost_nothing() -> None:
    attempts = LoginThrottle()
    failed(attempts, FREE - 1)
    assert attempts.wait_us(HOST, "u", NOW_US) == 0
    failed(attempts, 1)
    assert attempts.wait_us(HOST, "u", NOW_US) > 0


def test_each_failure_makes_the_next_wait_longer_up_to_a_limit() -> None:
    attempts, now_us, waits = LoginThrottle(), NOW_US, []
    failed(attempts, FREE, now_us=now_us)
    for _ in range(12):
        wait_us = attempts.wait_us(HOST, "u", now_us)
        waits.append(wait_us)
        now_us += wait_us
        failed(attempts, 1, now_us=now_us)
    assert waits[:4] == sorted(set(waits[:4]))
    assert waits[-1] == max(waits) == STEP_US_MAX


def test_attempts_of_one_user_wait_in_line() -> None:
    attempts = LoginThrottle()
    failed(attempts, FREE + 1)
    waits = [attempts.wait_us(HOST, "u", NOW_US) for _ in range(4)]
    steps = [later - earlier for earlier, later in pairwise(waits)]
    assert len(set(steps)) == 1
    assert steps[0] > 0


def test_who_would_wait_for_too_long_is_refused_unseen() -> None:
    attempts = LoginThrottle()
    failed(attempts, FREE + 1)
    waits = [attempts.wait_us(HOST, "u", NOW_US) for _ in range(1000)]
    assert -1 in waits
    assert set(waits[waits.index(-1) :]) == {-1}
    assert max(waits) <= WAIT_US_MAX
    assert attempts.wait_us(HOST, "u", NOW_US + WAIT_US_MAX) >= 0  # the line has become shorter


def test_other_users_of_the_same_address_and_the_same_user_elsewhere_do_not_wait() -> None:
    """However many threads guess, and for how long."""
    attempts, now_us = LoginThrottle(), NOW_US
    for _ in range(600):
        for _ in range(20):
            if attempts.wait_us(HOST, "u", now_us) == 0:
                failed(attempts, 1, now_us=now_us)
        now_us += STEP_US
        assert attempts.wait_us(HOST, "other", now_us) == 0
    assert attempts.wait_us("10.0.0.2", "u", now_us) == 0
    assert attempts.wait_us(HOST, "u", now_us) != 0


def test_failures_of_an_address_are_counted_over_all_users() -> None:
    attempts = LoginThrottle()
    sprayed(attempts, FREE_OF_ADDRESS - 1)
    assert attempts.wait_us(HOST, "new", NOW_US) == 0
    failed(attempts, 1, user="last")
    waits = [attempts.wait_us(HOST, f"new-{number}", NOW_US) for number in range(100)]
    in_line = waits[: waits.index(-1)]
    assert in_line == [STEP_OF_ADDRESS_US * number for number in range(1, len(in_line) + 1)]
    assert in_line[-1] == WAIT_US_MAX
    assert set(waits[len(in_line) :]) == {-1}
    assert attempts.wait_us("10.0.0.2", "new", NOW_US) == 0
    assert attempts.wait_us(HOST, "new", NOW_US + STEP_OF_ADDRESS_US) == 0  # one allowed failure has come back


def test_an_address_guesses_so_many_in_a_minute_and_no_more() -> None:
    attempts, seen = LoginThrottle(), 0
    for step in range(240):
        now_us = NOW_US + step * STEP_US
        for number in range(10):
            if attempts.wait_us(HOST, f"{step}-{number}", now_us) == 0:
                failed(attempts, 1, user=f"{step}-{number}", now_us=now_us)
                seen += 1
    assert seen <= FREE_OF_ADDRESS + 240 * STEP_US // STEP_OF_ADDRESS_US + 1


def test_who_has_logged_in_from_there_is_not_held_up_by_failures_of_others() -> None:
    attempts = LoginThrottle()
    attempts.done(HOST, "known", "http", True, NOW_US)
    sprayed(attempts, 2 * FREE_OF_ADDRESS)
    assert attempts.wait_us(HOST, "known", NOW_US) == 0
    assert attempts.wait_us(HOST, "unknown", NOW_US) != 0
    failed(attempts, FREE, user="known")
    assert attempts.wait_us(HOST, "known", NOW_US) > 0, "his own failures count"


def test_a_success_and_a_long_time_make_up_for_failures() -> None:
    attempts = LoginThrottle()
    failed(attempts, FREE + 5)
    attempts.done(HOST, "u", "amqp091", True, NOW_US)
    assert attempts.wait_us(HOST, "u", NOW_US) == 0
    failed(attempts, FREE + 5)
    assert attempts.wait_us(HOST, "u", NOW_US + FORGET_US + 1) == 0
    failed(attempts, 1, now_us=NOW_US + FORGET_US + 1)
    assert attempts.wait_us(HOST, "u", NOW_US + FORGET_US + 1) == 0


def test_a_success_makes_up_for_nobody_elses_failures() -> None:
    """Otherwise anyone with one user could guess all others' passwords."""
    attempts = LoginThrottle()
    sprayed(attempts)
    failed(attempts, FREE, user="victim")
    attempts.done(HOST, "own", "amqp091", True, NOW_US)
    assert attempts.wait_us(HOST, "victim", NOW_US) > 0
    assert attempts.wait_us(HOST, "user-new", NOW_US) > 0


def test_one_machines_many_addresses_are_one() -> None:
    attempts = LoginThrottle()
    for number in range(FREE + 1):
        failed(attempts, 1, f"2001:db8:1:2::{number:x}")
    assert attempts.wait_us("2001:db8:1:2:3:4:5:6", "u", NOW_US) > 0
    assert attempts.wait_us("2001:db8:1:3::1", "u", NOW_US) == 0
    assert attempts.wait_us("no:address", "u", NOW_US) == 0


def test_memory_is_bounded_and_who_failed_last_is_remembered() -> None:
    attempts = LoginThrottle()
    failed(attempts, FREE, "first")
    for number in range(USERS_MAX):
        failed(attempts, 1, f"host-{number}")
        if number == USERS_MAX // 2:
            failed(attempts, FREE, "again")
    assert len(attempts._users) == USERS_MAX
    assert len(attempts._addresses) == ADDRESSES_MAX
    assert attempts.wait_us("first", "u", NOW_US) == 0
    assert attempts.wait_us("again", "u", NOW_US) > 0
    for number in range(USERS_MAX + 1):
        attempts.done(f"host-{number}", "u", "amqp091", True, NOW_US)
    assert len(attempts._known) == USERS_MAX
    failed(attempts, 1, user="x" * 4096)
    assert max(len(user) for _, user in attempts._users) == NAME_MAX


def test_an_address_cannot_have_its_own_failures_forgotten() -> None:
    """Failures with other users, within what an address is allowed while they are remembered, don't displace it."""
    attempts = LoginThrottle()
    failed(attempts, FREE, user="victim")
    number, now_us = 0, NOW_US
    while now_us < NOW_US + FORGET_US - STEP_US:
        if attempts.wait_us(HOST, f"user-{number}", now_us) == 0:
            failed(attempts, 1, user=f"user-{number}", now_us=now_us)
            number += 1
        else:
            now_us += STEP_US
    assert number < USERS_MAX // 50
    assert (HOST, "victim") in attempts._users


def test_attempts_are_counted_by_protocol() -> None:
    attempts = LoginThrottle()
    failed(attempts, 2)
    attempts.done(HOST, "u", "http", True, NOW_US)
    attempts.count("http", False)
    assert (attempts.failed, attempts.succeeded) == ({"amqp091": 2, "http": 1}, {"http": 1})
    attempts.reset()
    assert (attempts.failed, attempts.succeeded) == ({}, {})
