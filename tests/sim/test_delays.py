"""Delays in virtual time. LEVERET_SIM_DELAYS: how many random worlds (300); LEVERET_SIM_SEED: only this one."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from leveret.delay.layout import Layout

from .delay_world import DESTINATIONS, SECOND_US, WEEK_US, DelayWorld, simulate

CHUNKS = 3
SEEDS = int(os.environ.get("LEVERET_SIM_DELAYS", "300"))
ONLY = os.environ.get("LEVERET_SIM_SEED")
LONGEST_S = (1 << 28) - 1
# in virtual time, timers fire when they are due, except that a broker may fire some of them together
LATE_US_MAX = 20_000


def world_of(seed: int) -> DelayWorld:
    """Run one world; a failure tells the command that repeats it."""
    try:
        return simulate(seed)
    except BaseException as error:
        error.add_note(f"again: LEVERET_SIM_SEED={seed} python -m pytest tests/sim/test_delays.py -k random_worlds")
        raise


@pytest.mark.timeout(600 + 2 * SEEDS)
@pytest.mark.parametrize("chunk", range(1) if ONLY else range(CHUNKS))
def test_in_random_worlds_nothing_is_early_lost_or_twice(chunk: int) -> None:
    seeds = [int(ONLY)] if ONLY else range(chunk, SEEDS, CHUNKS)
    hits: Counter[str] = Counter()
    promised = came = overdue = late_us = 0
    for seed in seeds:
        world = world_of(seed)
        hits += world.hits
        promised += len(world.ledger.promises)
        came += sum(promise.lives > 0 for promise in world.ledger.promises.values())
        overdue += world.ledger.overdue
        late_us = max(late_us, world.ledger.late_us)
    print(
        f"{len(seeds)} worlds: {promised} messages, {came} came, {overdue} of them due while the broker was down; "
        f"early 0, lost 0, duplicated 0, at most {late_us} µs late; {hits['crash']} crashes, "
        f"{hits['hop in flight']} of them between a hop's record and its sync"
    )
    assert late_us <= LATE_US_MAX
    assert ONLY or hits["hop in flight"] > 0
    assert ONLY or overdue > 0


def test_what_is_overdue_at_a_start_keeps_its_journal_file() -> None:
    """The message leaves its page while the journal is being read, and is kept in the journal from then on."""
    world_of(1058)


def test_what_waits_again_for_less_than_others_wait_here_is_not_behind_them() -> None:
    """Two messages of one level are overdue: only the first passes through a short level before."""
    world = DelayWorld(3)
    world.start()
    world.run([("setup",), ("delay", "orders", 9), ("time", 5 * SECOND_US), ("delay", "orders", 8)])
    world.kill()
    world.now_us += WEEK_US
    world.start()
    world.run([("watch", "orders")])
    assert [promise.lives for promise in world.ledger.promises.values()] == [1, 1]


@pytest.mark.parametrize("units", [1, 10, LONGEST_S // 2 + 1, LONGEST_S])
def test_a_delay_of_years_is_over_on_the_second(units: int) -> None:
    world = DelayWorld(1)
    world.start()
    world.run([("setup",), ("watch", "orders"), ("delay", "orders", units)])
    (promise,) = world.ledger.promises.values()
    world.run([("time", units * SECOND_US - 2 * SECOND_US)])
    assert promise.lives == 0
    world.run([("time", 2 * SECOND_US)])
    assert promise.lives == 1
    assert world.ledger.late_us <= LATE_US_MAX


@pytest.mark.parametrize("units", [10, LONGEST_S])
def test_so_it_is_with_a_stop_in_every_part_of_it(units: int) -> None:
    """Stops, kills, power cuts and changes of the wall clock: exactly the time that has passed counts."""
    world = DelayWorld(1)
    world.start()
    world.run([("setup",), ("delay", "orders", units)])
    (promise,) = world.ledger.promises.values()
    part_us = units * SECOND_US // 12
    for number in range(10):
        world.run([("set", (-1) ** number * 3 * part_us), ("time", part_us // 2)])
        if number % 2:
            world.kill()
            world.now_us += part_us // 2
            world.ahead_us -= part_us
        else:
            world.stop()
            world.crash()
            world.off(part_us // 2, 0)
        world.start()
    world.run([("watch", "orders"), ("time", promise.due_us - world.broker_us - SECOND_US)])
    assert promise.lives == 0
    world.run([("time", 2 * SECOND_US)])
    assert promise.lives == 1
    assert world.now_us - promise.sent_us - promise.delay_us < 2 * SECOND_US
    assert world.ledger.late_us <= LATE_US_MAX


def test_after_a_week_everything_due_comes_once_in_the_order_of_due() -> None:
    """The ledger checks each delivery: in one destination, no message may come behind one that was due later."""
    world = DelayWorld(5)
    world.start()
    delays = [world.rng.randrange(1 << world.rng.randrange(1, 21)) for _ in range(300)]
    world.run([("setup",), *[("delay", DESTINATIONS[n % 2], units) for n, units in enumerate(delays)]])
    world.kill()
    world.now_us += WEEK_US
    world.start()
    week_s = WEEK_US // SECOND_US
    due = sum(units <= week_s for units in delays)
    world.run([("watch", name) for name in DESTINATIONS])
    came = sum(promise.lives for promise in world.ledger.promises.values())
    assert due <= came <= len(delays)
    assert world.ledger.overdue >= due - 1
    world.run([("drain",)])
    assert [promise.lives for promise in world.ledger.promises.values()] == [1] * len(delays)


def test_a_world_of_milliseconds() -> None:
    world = DelayWorld(2, Layout("ms", unit_ms=1, levels=10))
    world.start()
    world.run([("setup",), ("watch", "orders"), *[("delay", "orders", units) for units in range(1, 1 << 10, 13)]])
    world.run([("drain",)])
    assert all(promise.lives == 1 for promise in world.ledger.promises.values())
    assert world.ledger.late_us <= LATE_US_MAX
