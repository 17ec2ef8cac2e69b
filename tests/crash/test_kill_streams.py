"""kill -9 and power cuts while streams are written and read: offsets do not change, no confirmed message is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.client import connect
from leveret.testing.processes import LeveretProcess

from .load import KILLS
from .stream_load import StreamLedger, check, declare, load_and_end
from .test_power import CUTS, LossyLeveret
from .test_trace import TracedProcess

ROUNDS = max(3, KILLS // 5)
CUT_ROUNDS = max(3, CUTS // 4)


def files(process: LeveretProcess) -> list[Path]:
    return sorted((process.data_dir / "streams").glob("*/*.lvs"))


@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_kill_under_load(process: LeveretProcess, seed: int) -> None:
    """Runs LEVERET_CRASH_KILLS / 5 times; `pytest -rP` shows what the kills hit."""
    ledger = StreamLedger(random.Random(seed))
    for _ in range(ROUNDS):
        await load_and_end(process, ledger)
        process.start()
        await check(process.url, ledger)
    print(*ledger.report(), f"{len(ledger.confirmed)} confirmed, {len(files(process))} files", sep="\n")
    assert len(ledger.confirmed) > 20 * ROUNDS, "the load was too small to mean anything"
    assert ledger.hits["deliveries"] > 20 * ROUNDS
    assert ledger.hits["starts behind a retention"]
    assert len({path.parent for path in files(process)}) == 2
    assert len(files(process)) > 4


@pytest.mark.needs("compiler")
@pytest.mark.timeout(60 + 30 * CUT_ROUNDS)
async def test_power_loss_under_load(tmp_path: Path, seed: int) -> None:
    """Runs LEVERET_CRASH_CUTS / 4 times, every second one on a disk whose syncs had just stopped."""
    generator = random.Random(seed)
    ledger = StreamLedger(generator)
    with LossyLeveret(tmp_path) as process:
        for cut in range(CUT_ROUNDS):
            await load_and_end(process, ledger, process.disk.syncs_stopped() if cut % 2 else None)
            process.disk.absorb()
            gone = process.disk.power_loss(generator if generator.random() < 0.7 else None)
            ledger.hits["cuts that took changes away"] += bool(gone)
            process.start()
            await check(process.url, ledger)
        assert len(files(process)) > 4
    print(*ledger.report(), f"{len(ledger.confirmed)} confirmed", sep="\n")
    assert len(ledger.confirmed) > 20 * CUT_ROUNDS, "the load was too small to mean anything"
    assert ledger.hits["cuts that took changes away"]
    assert ledger.hits["deliveries"] > 20 * CUT_ROUNDS


@pytest.mark.needs("compiler")
async def test_the_test_sees_a_disk_that_lies(tmp_path: Path, seed: int) -> None:
    """If syncs of files are only pretended, the same run finds loss."""
    ledger = StreamLedger(random.Random(seed))
    process = LossyLeveret(tmp_path)
    with process:
        async with await connect(process.url, reconnect=False) as connection:
            await declare(await connection.channel())
    process.disk.absorb()
    process.disk.ignored = {"file"}
    with process:
        await load_and_end(process, ledger)
        process.disk.absorb()
        process.disk.power_loss()
        process.start()
        with pytest.raises(AssertionError, match=r"confirmed and lost|all is gone|is gone|is message"):
            await check(process.url, ledger)


@contextmanager
def told_of_it(process: LeveretProcess) -> Iterator[None]:
    process.said("its tail stays in the journal: ")
    yield


@pytest.mark.needs("strace")
async def test_a_disk_without_room_for_chunks_leaves_the_tail_in_the_journal(tmp_path: Path, seed: int) -> None:
    """The thread that writes chunks has no space for its first files: nothing is lost, and later it goes on."""
    ledger = StreamLedger(random.Random(seed))
    with LeveretProcess(tmp_path / "data") as healthy:
        await check(healthy.url, ledger)
    names = "rename,renameat,renameat2"
    options = ["-e", f"trace={names}", "-e", f"inject={names}:error=ENOSPC:when=1..2"]
    process = TracedProcess(tmp_path / "data", tmp_path / "trace", options)
    with process:
        await load_and_end(process, ledger, told_of_it(process), least=1.0)
        output = process.output
    with LeveretProcess(tmp_path / "data") as again:
        await check(again.url, ledger)
        assert files(again)
    assert "No space left on device" in output
