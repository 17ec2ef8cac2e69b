"""The broker's time: whatever happens to the wall clock and the machine, nothing falls due early."""

from __future__ import annotations

import logging
import os
import random

import pytest

from leveret.broker.broker import Broker, Settings
from leveret.broker.methods.queue_methods import make_queue
from leveret.broker.storage.recovery import Recovery
from leveret.broker.timeline import ClockSample
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.clock import SAMPLE_US, STEP_US_MIN, Clock, Sources, system_sources
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.wire import grammar
from leveret.wire.frames import Frame
from leveret.wire.properties import decode_header

from .rig import Rig
from .support import SECOND_US, Bench

HOUR_US = 3600 * SECOND_US
NOON_US = 1_800_000_000 * SECOND_US


class Machine:
    """A machine's clocks."""

    def __init__(self, has_boot_id: bool = True) -> None:
        self.wall_us, self.boot_us, self.boots, self.true_us = NOON_US, 7 * HOUR_US, 1, 0
        # `true_us`: how much time has really passed
        self._has_boot_id = has_boot_id

    def sources(self) -> Sources:
        boot_id = f"boot {self.boots}" if self._has_boot_id else ""
        return Sources(lambda: self.wall_us * 1000, lambda: self.boot_us * 1000, boot_id)

    def wait(self, us: int) -> None:
        """Let time pass, with the machine awake or asleep."""
        self.true_us += us
        self.wall_us += us
        self.boot_us += us

    def boot(self, off_us: int, set_us: int = 0) -> None:
        """Boot after being off for `off_us`; the wall clock was moved by `set_us` meanwhile, or is wrong by it from now
        on."""
        self.wait(off_us)
        self.boots += 1
        self.boot_us = 30 * SECOND_US
        self.wall_us += set_us


class Life:
    """An epoch of a broker on the machine, with the batches of earlier ones; what `look` records is synced at once."""

    def __init__(self, machine: Machine, batches: list[bytes] | None = None) -> None:
        self.bench = Bench()
        self.bench.batches = list(batches or [])
        self.clock = Clock(self.bench.broker.timeline, machine.sources())
        recovery = Recovery(self.bench.broker, 0)
        for batch in self.bench.batches:
            recovery.batch(batch)
        recovery.now_us = self.clock.resume()
        recovery.finish()
        self.look()

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    @property
    def sample(self) -> ClockSample:
        sample = self.bench.broker.timeline.sample
        assert sample is not None
        return sample

    def look(self) -> None:
        self.clock.look()
        if self.bench.broker.log.size():
            self.bench.sync()

    def next(self, machine: Machine) -> Life:
        """Kill this epoch, and return the next one."""
        return Life(machine, self.bench.batches)


def test_it_begins_with_the_time_on_the_wall() -> None:
    machine = Machine()
    life = Life(machine)
    assert life.now_us == NOON_US
    assert life.sample == (NOON_US, NOON_US, machine.boot_us, "boot 1")


@pytest.mark.parametrize("step_us", [HOUR_US, -HOUR_US, STEP_US_MIN, -STEP_US_MIN, -NOON_US])
def test_a_wall_clock_that_is_set_changes_nothing_but_what_people_see(step_us: int) -> None:
    machine = Machine()
    life = Life(machine)
    machine.wait(5)
    machine.wall_us += step_us
    life.look()
    machine.wait(7)
    assert life.now_us == NOON_US + 12
    assert life.bench.broker.timeline.wall_us(life.now_us) == machine.wall_us


def test_a_step_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    life = Life(machine)
    with caplog.at_level(logging.WARNING, "leveret"):
        machine.wall_us -= HOUR_US
        for _ in range(3):
            machine.wait(SECOND_US)
            life.look()
        machine.wall_us += HOUR_US + STEP_US_MIN - 1
        life.look()
    ways = [record.message.partition("; ")[0] for record in caplog.records]
    assert ways == ["the wall clock was set back by 3600.000 s", "the wall clock was set forward by 3600.001 s"]


def test_the_time_that_the_machine_sleeps_has_passed() -> None:
    machine = Machine()
    life = Life(machine)
    machine.wait(8 * HOUR_US)
    life.look()
    assert life.now_us == NOON_US + 8 * HOUR_US
    assert life.bench.broker.timeline.offset_us == 0


@pytest.mark.parametrize("step_us", [HOUR_US, -HOUR_US])
def test_a_restart_counts_what_has_passed_whatever_the_wall_says(step_us: int) -> None:
    machine = Machine()
    life = Life(machine)
    machine.wait(3)
    machine.wall_us += step_us
    again = life.next(machine)
    assert again.now_us == NOON_US + 3
    assert again.bench.broker.timeline.wall_us(again.now_us) == machine.wall_us


def test_a_week_without_the_machine_has_passed() -> None:
    machine = Machine()
    life = Life(machine)
    machine.wait(11)
    machine.boot(168 * HOUR_US)
    assert life.next(machine).now_us == NOON_US + 11 + 168 * HOUR_US - STEP_US_MIN


@pytest.mark.parametrize("step_us", [HOUR_US, -HOUR_US])
def test_a_step_that_was_seen_is_no_time_that_has_passed(step_us: int) -> None:
    """Holds over a reboot, and when the clock is set right again in the next epoch."""
    machine = Machine()
    life = Life(machine)
    machine.wall_us += step_us
    life.look()
    machine.boot(HOUR_US)
    again = life.next(machine)
    assert again.now_us == NOON_US + HOUR_US - STEP_US_MIN
    machine.wall_us -= step_us
    again.look()
    machine.boot(HOUR_US)
    assert again.next(machine).now_us == NOON_US + 2 * (HOUR_US - STEP_US_MIN)


def test_a_step_that_was_not_written_down_any_more_is_none_on_the_same_boot() -> None:
    """The process was killed before the batch with the sample was on disk, or that batch was torn."""
    machine = Machine()
    life = Life(machine)
    machine.wall_us += HOUR_US
    life.clock.look()  # recorded, never synced
    machine.wait(9)
    assert life.bench.broker.log.size()
    assert life.next(machine).now_us == NOON_US + 9


def test_a_wall_clock_that_is_behind_after_a_boot_takes_nothing_back() -> None:
    machine = Machine()
    life = Life(machine)
    machine.boot(HOUR_US, -2 * HOUR_US)
    again = life.next(machine)
    assert again.now_us == NOON_US
    machine.wall_us += 2 * HOUR_US  # the clock is set right: a step like any other
    again.look()
    assert again.now_us == NOON_US
    assert again.bench.broker.timeline.wall_us(again.now_us) == machine.wall_us


def test_without_anything_new_there_is_a_sample_now_and_then() -> None:
    """So a wall clock that is behind after a boot takes back little."""
    machine = Machine()
    life = Life(machine)
    batches = len(life.bench.batches)
    for _ in range(3 * SAMPLE_US // SECOND_US):
        machine.wait(SECOND_US)
        life.look()
    assert len(life.bench.batches) == batches + 3
    machine.boot(0, -HOUR_US)
    assert life.next(machine).now_us == NOON_US + 3 * SAMPLE_US


def test_every_start_counts_as_a_boot_where_the_system_does_not_say() -> None:
    machine = Machine(has_boot_id=False)
    machine.boot_us = SECOND_US
    life = Life(machine)
    machine.wait(HOUR_US)
    assert life.next(machine).now_us == NOON_US + HOUR_US - STEP_US_MIN
    machine.boot(HOUR_US)
    assert life.next(machine).now_us == NOON_US + 2 * HOUR_US - STEP_US_MIN


def test_a_clock_since_the_boot_that_is_behind_its_sample_is_another_ones() -> None:
    """For example in a container whose clocks begin anew while the machine goes on."""
    machine = Machine()
    life = Life(machine)
    machine.wait(HOUR_US)
    machine.boot_us = SECOND_US
    assert life.next(machine).now_us == NOON_US + HOUR_US - STEP_US_MIN


def test_a_journal_from_before_begins_with_the_time_on_the_wall() -> None:
    machine = Machine()
    life = Life(machine)
    life.bench.batches.clear()
    life.bench.connect().queue("q", durable=True)
    machine.wait(HOUR_US)
    assert life.next(machine).now_us == NOON_US + HOUR_US


def test_a_wall_clock_before_1970_is_no_time_at_all() -> None:
    machine = Machine()
    machine.wall_us = -5
    assert Life(machine).now_us > 0


def test_clocks_that_can_not_be_read_at_once_show_no_step() -> None:
    """The process had to wait for the CPU between two readings."""
    machine = Machine()
    life = Life(machine)
    waits = [3 * STEP_US_MIN, STEP_US_MIN]

    def wall_ns() -> int:
        found = machine.wall_us * 1000
        machine.wait(waits.pop() if waits else 1)
        return found

    clock = Clock(life.bench.broker.timeline, machine.sources()._replace(wall_ns=wall_ns))
    clock.resume()
    before = life.sample
    waits += [3 * STEP_US_MIN, STEP_US_MIN]
    clock.look()
    assert not waits
    assert life.sample == before


def test_the_machine_itself_goes_evenly() -> None:
    clock = Clock(Bench().broker.timeline, system_sources())
    first = clock.now_us()
    assert clock.resume() >= first
    clock.look()
    assert abs(clock._timeline.offset_us) < STEP_US_MIN


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_no_more_time_passes_than_has_passed(seed: int) -> None:
    """Restarts, boots, sleep, and wall clock steps at any time, except in the last moment before a boot."""
    rng = random.Random(seed)
    machine = Machine()
    life = Life(machine)
    last_us = life.now_us
    is_right = True  # whether the wall clock was never behind after a boot
    for _ in range(200):
        machine.wait(rng.randrange(10 ** rng.randrange(1, 12)))
        what = rng.randrange(6)
        if what == 0:
            machine.wall_us += rng.choice((-1, 1)) * rng.randrange(10 ** rng.randrange(1, 14))
            life.look()
        elif what == 1:
            machine.wall_us += rng.choice((-1, 1)) * rng.randrange(10 ** rng.randrange(1, 14))
            life = life.next(machine)
        elif what == 2:
            machine.wall_us += rng.randrange(STEP_US_MIN)  # below the detection threshold
            life.look()
            wrong_us = rng.choice((0, 0, -rng.randrange(10**13)))
            is_right = is_right and wrong_us == 0
            machine.boot(rng.randrange(10 ** rng.randrange(1, 13)), wrong_us)
            life = life.next(machine)
        else:
            life.look()
        assert life.now_us >= last_us - STEP_US_MIN or not is_right
        last_us = life.now_us
        assert life.now_us - NOON_US <= machine.true_us
        if is_right:
            assert life.now_us - NOON_US >= machine.true_us - 2 * STEP_US_MIN * machine.boots


def test_what_a_sample_is_stays_true_when_its_file_is_gone() -> None:
    machine = Machine()
    disk = MemoryDisk()
    rig = Rig(disk)
    clock = Clock(rig.bench.broker.timeline, machine.sources())
    machine.wall_us += HOUR_US
    clock.look()
    rig.write()
    first = rig.journal.current
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    while rig.journal.current < first + 5:
        client.publish("q", b"x" * 200, delivery_mode=2)
        rig.write()
    assert rig.journal.files()[0] > first
    disk.crash()
    again = Rig(disk)
    machine.wait(13)
    clock = Clock(again.bench.broker.timeline, machine.sources())
    assert clock.resume() == NOON_US + 13


def test_a_queue_that_came_back_is_idle_since_then() -> None:
    machine = Machine()
    life = Life(machine)
    life.bench.connect().queue("q", durable=True, arguments={"x-expires": HOUR_US // 1000})
    machine.wait(10 * HOUR_US)
    again = life.next(machine)
    queues = again.bench.broker.vhosts["/"].queues
    again.bench.broker.run_timers(again.now_us + HOUR_US - 1)
    assert "q" in queues
    again.bench.broker.run_timers(again.now_us + HOUR_US)
    assert not queues


def deaths(frames: list[Frame]) -> list[int]:
    """Return the times of x-death, in seconds."""
    headers = [decode_header(frame.payload)[0].headers for frame in frames if frame.kind == 2]
    return [int(death["time"].timestamp()) for found in headers if found for death in found["x-death"]]  # type: ignore[union-attr,index,call-overload]


def test_people_are_told_the_time_on_the_wall() -> None:
    machine = Machine()
    life = Life(machine)
    bench = life.bench
    bench.now_us = life.now_us
    client = bench.connect()
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.queue("dead")
    client.queue("brief", arguments=arguments)
    client.call(1, grammar.BASIC_CONSUME, queue="dead", no_ack=True)
    client.publish("brief")
    machine.wall_us -= HOUR_US
    life.look()
    bench.pass_time(999_999)
    assert not client.frames()
    bench.pass_time(1)
    assert deaths(client.frames()) == [(NOON_US - HOUR_US) // SECOND_US + 1]


async def test_what_fell_due_while_the_machine_slept_does_not_wait_for_the_loop() -> None:
    """The timers of an event loop sleep, too."""
    disk, machine = MemoryDisk(), Machine()
    alarms = Alarms(ResourceLimits(0, 1), Gauges(lambda: 1, lambda: 0, lambda: None))
    broker = Broker(Settings(), os.urandom)
    journal, segments, reserve = Journal(disk, "/journal"), SegmentStore(disk, "/segments"), Reserve(disk, "/r")
    server = Server(broker, journal, segments, StreamStore(disk, "/streams"), reserve, alarms, machine.sources())
    try:
        server.recover()
        vhost = broker.vhosts["/"]
        vhost.add_queue(make_queue(vhost, "q", False, False, {"x-expires": HOUR_US // 1000}), 0, server.now_us())
        server.begin()
        machine.wait(HOUR_US - 1)
        server.begin()
        assert "q" in vhost.queues
        machine.wait(1)
        server.begin()
        assert not vhost.queues
    finally:
        server.stop()
        await server.run()
