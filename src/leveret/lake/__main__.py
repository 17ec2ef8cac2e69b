"""The sealing process: `python -m leveret.lake TABLES_DIR`, started by the broker (net/disk/sealing.py).

It reads requests from standard input and writes answers to standard output, one JSON object per line (fields:
sealer.py). It ends when its input ends, so it outlives its broker by one request at most. Status 1: it cannot start.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO, Final

import msgspec

NICENESS: Final = 10


def main(tables_dir: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Serve requests until the input ends. Raises OSError if the directory cannot be used."""
    import pyarrow as pa

    from leveret.lake.sealer import Sealer, SealRequest, SealResult

    pa.set_cpu_count(1)  # leaves the other processors to the broker and its clients
    sealer = Sealer(tables_dir)
    for line in requests:
        number = 0
        try:
            number = msgspec.json.decode(line, type=_Id).id
            answer = sealer.seal(msgspec.json.decode(line, type=SealRequest))
        except Exception as error:  # any error is reported to the broker; the next request may succeed
            answer = SealResult(number, error=f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
    sealer.close()


class _Id(msgspec.Struct):
    id: int


if __name__ == "__main__":
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker handles a terminal's Ctrl-C
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with the answers
    try:
        main(sys.argv[1], sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(0)  # the broker has ended
    except OSError as error:
        sys.exit(f"streams can't be sealed in {sys.argv[1]}: {error}")
