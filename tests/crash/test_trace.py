"""kill -9 does not test power cuts; the system calls of a real run do: no answer before the fdatasync of its record."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from leveret.client import ClientError, Properties, connect
from leveret.testing.processes import LeveretProcess
from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, FrameReader
from leveret.wire.method import decode_method

CALLS = "pwrite64,pwritev,pwritev2,write,writev,fdatasync,io_setup,io_submit,io_getevents,fallocate,sendto,sendmsg"
PERSISTENT = Properties(delivery_mode=2)
START = re.compile(r"^(\d+)\s+(\w+)\((\d+)?(.*)$")
RESUMED = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
EXIT_JOURNAL_FAILED = 5
# as on a system without asynchronous syncs by the kernel: the sync thread does them
BY_THE_THREAD = ("-e", "inject=io_setup:error=ENOSYS")


class TracedProcess(LeveretProcess):
    """A broker under strace, which can also make system calls fail."""

    start_timeout_s = 60.0

    def __init__(self, data_dir: Path, trace: Path, options: Sequence[str] = ()) -> None:
        super().__init__(data_dir)
        self._trace = trace
        self._options = options

    def command(self) -> Sequence[str | Path]:
        what = ["-f", "-xx", "-s", "10000000", "-e", "signal=none", "-e", f"trace={CALLS}"]
        return ["strace", *what, *self._options, "-o", self._trace, *super().command()]

    def _terminate(self, process: "subprocess.Popen[bytes]") -> None:
        # The broker below strace gets the signal; strace then ends with its exit status.
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)


@dataclass
class Call:
    """A system call: where in the trace it began and returned, its descriptor, its bytes, and whether it succeeded."""

    name: str
    descriptor: int
    began: int
    ended: int
    data: bytes
    result: str


def sync_by_the_kernel(submitted: str, began: int, told: str, ended: int) -> Call:
    """Return an io_submit and the io_getevents that reported its end as one call."""
    descriptor, result = re.search(r"aio_fildes=(\d+)", submitted), re.search(r"res=(-?\d+)", told)
    return Call("fdatasync", int(descriptor[1]) if descriptor else -1, began, ended, b"", result[1] if result else "-1")


def parse(lines: list[str]) -> list[Call]:
    """Return the calls of a trace in the order in which they began, without those that never returned."""
    calls: list[Call] = []
    open_calls: dict[str, tuple[str, str, int, str]] = {}
    submitted: tuple[str, int] = ("", 0)
    for index, line in enumerate(lines):
        resumed = RESUMED.match(line)
        if resumed is not None:
            name, descriptor, began, text = open_calls.pop(resumed[1])
            assert name == resumed[2]
            text += resumed[3]
        else:
            start = START.match(line)
            if start is None:
                continue
            name, descriptor, began, text = start[2], start[3] or "-1", index, start[4]
            if text.endswith("<unfinished ...>"):
                open_calls[start[1]] = (name, descriptor, began, text)
                continue
        if name == "io_submit":
            submitted = text, began
        elif name == "io_getevents":
            calls.append(sync_by_the_kernel(*submitted, text, index))
        data = b"".join(bytes.fromhex(part.replace("\\x", "")) for part in TEXT.findall(text))
        calls.append(Call(name, int(descriptor), began, index, data, text.rpartition("= ")[2].split(" ")[0]))
    return sorted(calls, key=lambda call: call.began)


def method_frames(calls: list[Call]) -> list[tuple[Call, str, dict[str, object]]]:
    """Return every method that the broker sent, with the call that sent it. A frame may span several calls."""
    readers: dict[int, FrameReader] = {}
    sent = []
    for call in calls:
        if call.name not in {"sendto", "sendmsg", "write", "writev"} or call.result.startswith("-"):
            continue
        if call.name.startswith("write") and call.descriptor <= 2:
            continue
        if call.descriptor not in readers and call.data[:1] != bytes([FRAME_METHOD]):
            continue
        reader = readers.setdefault(call.descriptor, FrameReader(1 << 20))
        reader.feed(call.data[: int(call.result)])
        while (frame := reader.next()) is not None:
            if frame.kind == FRAME_METHOD:
                method = decode_method(frame.payload)
                sent.append((call, method.name, dict(method.values)))
    return sent


def is_safe_before(calls: list[Call], needle: bytes, moment: int) -> bool:
    """Whether a write with these bytes had returned before an fdatasync that had returned before `moment`."""
    made = [call for call in calls if call.name.startswith("pwrite") and not call.result.startswith("-")]
    writes = [call for call in made if needle in call.data]
    for write in writes:
        for sync in calls:
            is_good = sync.name == "fdatasync" and sync.descriptor == write.descriptor and sync.result == "0"
            if is_good and write.ended < sync.began and sync.ended < moment:
                return True
    return False


async def publish_all(url: str, count: int, window: int) -> None:
    """Declare durable things, then publish `count` persistent messages with `window` of them unconfirmed."""
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.declare_exchange("trace.exchange")
        for n in range(3):
            await channel.declare_queue(f"trace.queue.{n}")
            await channel.bind_queue(f"trace.queue.{n}", "trace.exchange", "#")
        await channel.confirm_select()
        for n in range(1, count + 1):
            channel.publish(b"message %06d." % n, "trace.exchange", "key", PERSISTENT)
            if n % window == 0:
                await channel.wait_for_confirms()
        await channel.wait_for_confirms()


@pytest.mark.needs("strace")
@pytest.mark.parametrize("window", [1, 50])
@pytest.mark.parametrize("options", [(), BY_THE_THREAD], ids=["kernel", "thread"])
async def test_every_answer_follows_the_sync_of_its_record(
    tmp_path: Path, window: int, options: Sequence[str]
) -> None:
    trace = tmp_path / "trace"
    count = 30 * window
    with TracedProcess(tmp_path / "data", trace, options) as process:
        await publish_all(process.url, count, window)
    calls = parse(trace.read_text().splitlines())
    answers = method_frames(calls)
    confirmed = 0
    for call, name, values in answers:
        if name == grammar.BASIC_ACK.name:
            tag = int(str(values["delivery_tag"]))
            first = confirmed + 1 if values["multiple"] else tag
            for number in range(first, tag + 1):
                assert is_safe_before(calls, b"message %06d." % number, call.began), f"confirm {number} before its sync"
            confirmed = max(confirmed, tag)
        elif name == grammar.QUEUE_DECLARE_OK.name:
            needle = str(values["queue"]).encode()
            assert is_safe_before(calls, needle, call.began), f"{values['queue']} declared before its sync"
    assert confirmed == count
    assert sum(name == grammar.QUEUE_DECLARE_OK.name for _, name, _ in answers) == 3
    assert any(call.name == "io_getevents" for call in calls) == (not options)
    syncs = sum(call.name == "fdatasync" for call in calls)
    # One sync at a time covers everything that waits: a window of confirms costs far fewer syncs than messages.
    assert syncs < count / 5 if window > 1 else syncs >= count


@pytest.mark.needs("strace")
async def test_every_commit_ok_follows_the_sync_of_its_record(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with TracedProcess(tmp_path / "data", trace) as process:
        async with await connect(process.url, reconnect=False) as connection:
            channel = await connection.channel()
            await channel.declare_queue("trace.queue")
            await channel.tx_select()
            for n in range(30):
                for part in "ab":
                    channel.publish(b"message %06d%c." % (n, ord(part)), "", "trace.queue", PERSISTENT)
                    await channel.drain()
                await channel.tx_commit()
    calls = parse(trace.read_text().splitlines())
    commits = [call for call, name, _ in method_frames(calls) if name == grammar.TX_COMMIT_OK.name]
    assert len(commits) == 30
    for n, call in enumerate(commits):
        for part in "ab":
            needle = b"message %06d%c." % (n, ord(part))
            assert is_safe_before(calls, needle, call.began), f"commit-ok {n} before its sync"


def test_the_check_would_notice_a_confirm_before_its_sync() -> None:
    hexed = "".join(f"\\x{byte:02x}" for byte in b"message 000001.")
    early = [
        f'7 pwritev(9, [{{iov_base="{hexed}", iov_len=15}}], 1, 8192) = 15',
        "7 fdatasync(9 <unfinished ...>",
        '6 sendto(5, "\\x01", 1, 0, NULL, 0) = 1',
        "7 <... fdatasync resumed>) = 0",
        '6 sendto(5, "\\x01", 1, 0, NULL, 0) = 1',
    ]
    calls = parse(early)
    sends = [call for call in calls if call.name == "sendto"]
    assert not is_safe_before(calls, b"message 000001.", sends[0].began)
    assert is_safe_before(calls, b"message 000001.", sends[1].began)
    assert not is_safe_before(calls, b"message 000002.", sends[1].began)
    by_kernel = [
        early[0],
        "7 io_submit(0x7f, 1, [{aio_data=0x1, aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=9}]) = 1",
        early[2],
        "7 io_getevents(0x7f, 1, 1, [{data=0x1, obj=0x7f, res=0, res2=0}], NULL) = 1",
        early[2],
    ]
    calls = parse(by_kernel)
    assert not is_safe_before(calls, b"message 000001.", sends[0].began)
    assert is_safe_before(calls, b"message 000001.", sends[1].began)
    calls = parse([line.replace("res=0", "res=-5") for line in by_kernel])
    assert not is_safe_before(calls, b"message 000001.", sends[1].began)
    refused = parse([early[0].replace("= 15", "= -1 ENOSPC (No space left on device)"), *early[1:]])
    assert not is_safe_before(refused, b"message 000001.", sends[1].began)


@pytest.mark.needs("strace")
@pytest.mark.parametrize(
    ("call", "error"),
    [("fdatasync", "EIO"), ("fdatasync", "ENOSPC"), ("io_getevents", "EIO"), ("pwritev,pwritev2", "EIO")],
)
async def test_a_failing_disk_ends_the_broker_and_confirms_nothing_more(tmp_path: Path, call: str, error: str) -> None:
    """From the n-th call on the system call fails: the broker logs it and ends with its own exit status."""
    trace = tmp_path / "trace"
    options = ["-e", f"inject={call}:error={error}:when=30+"]
    if call == "fdatasync":
        options += BY_THE_THREAD
    process = TracedProcess(tmp_path / "data", trace, options)
    process.start()
    try:
        with pytest.raises(ClientError):
            await publish_all(process.url, 500, 1)
        assert process.wait() == EXIT_JOURNAL_FAILED, process.output
    finally:
        process.kill()
    assert "the journal failed" in process.output
    calls = parse(trace.read_text().splitlines())
    refused = next(c.began for c in calls if c.name in call.split(",") and c.result == "-1")
    acks = [c for c, name, _ in method_frames(calls) if name == grammar.BASIC_ACK.name]
    assert acks
    assert all(ack.began < refused for ack in acks)
    # Everything confirmed before is there after a start on a sound disk.
    with LeveretProcess(tmp_path / "data") as healed:
        async with await connect(healed.url, reconnect=False) as connection:
            channel = await connection.channel()
            count = (await channel.declare_queue("trace.queue.0", passive=True)).message_count
            assert len(acks) <= count <= len(acks) + 1
