"""A crash at every disk operation while messages are held, moved between message lists and pages, and routed."""

from __future__ import annotations

from collections import Counter

import pytest

from leveret.store.disk import MemoryDisk

from .crash_stories import CrashStory, crash_everywhere
from .delays import Site, fetch, send
from .rig import Rig
from .support import SECOND_US

HOUR_MS = 3_600_000


class Story(CrashStory):
    """Messages that are delayed for seconds and for an hour."""

    def __init__(self, crash_at: int) -> None:
        self.due_us: dict[int, int] = {}  # by number of each message sent
        self.safe: set[int] = set()  # numbers of the confirmed messages
        self.site: Site | None = None
        super().__init__(crash_at)

    def tell(self) -> None:
        self.site = site = Site(octets_max=1500, disk=self.disk)
        for delays_ms in ([HOUR_MS + 1000 * (n * 37 % 60) for n in range(14)], [3000, 1000, 2000], [HOUR_MS] * 5):
            for delay_ms in delays_ms:
                self.due_us[len(self.due_us)] = site.now_us + delay_ms * 1000
                number = len(self.due_us) - 1
                send(site.client, b"%d" % number, delay_ms, delivery_mode=1 + number % 2)
            self._save(site)
            site.rig.page()
            self._pass(site, SECOND_US)
        self._pass(site, 5 * SECOND_US)
        self._pass(site, (HOUR_MS - 10_000) * 1000)
        for _ in range(10):
            self._pass(site, 9 * SECOND_US)
            site.rig.page()

    def _save(self, site: Site) -> None:
        site.save()
        self.safe = set(self.due_us)

    def _pass(self, site: Site, us: int) -> None:
        site.pass_time(us)
        self._save(site)


def check(story: Story, disk: MemoryDisk) -> None:
    """Each message arrives at most once and not early, and no confirmed one is missing."""
    rig = Rig(disk, octets_max=1500)
    bench = rig.bench
    if story.site is None:
        return  # crashed before the declaration
    bench.now_us = story.site.now_us
    client = bench.connect()
    found: list[int] = []
    while True:
        rig.write()
        client.frames()
        for body in fetch(client):
            found.append(int(body))
            assert story.due_us[found[-1]] <= bench.now_us
        next_us = bench.broker.timers.next_us()
        if not next_us:
            break
        bench.pass_time(max(0, next_us - bench.now_us))
    assert [number for number, count in Counter(found).items() if count > 1] == []
    assert story.safe <= set(found)


@pytest.mark.timeout(600)
def test_a_crash_at_any_disk_operation_leaves_each_message_in_one_place() -> None:
    story = crash_everywhere(Story, check, 0, 1)
    assert story.operations["page"] > 5
    assert story.operations.total() > 100
