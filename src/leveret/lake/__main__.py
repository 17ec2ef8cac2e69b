"""The sealing process: `python -m leveret.lake TABLES_DIR`, started by the broker (net/disk/sealing.py).

Requests come on standard input, answers go to standard output, one JSON object a line (sealer.py has their fields). It
ends when its input does, so it never outlives its broker by more than one request. Status 1: it can't begin.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO, Final

import msgspec

NICENESS: Final = 10


def main(tables_dir: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Serve requests until there are no more. OSError if the directory can't be used."""
    import pyarrow as pa

    from leveret.lake.sealer import Answer, Request, Sealer

    pa.set_cpu_count(1)  # the other processors are the broker's and its clients'
    sealer = Sealer(tables_dir)
    for line in requests:
        number = 0
        try:
            number = msgspec.json.decode(line, type=_Id).id
            answer = sealer.seal(msgspec.json.decode(line, type=Request))
        except Exception as error:  # whatever it is, the broker is told, and the next request may be better
            answer = Answer(number, error=f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
    sealer.close()


class _Id(msgspec.Struct):
    id: int


if __name__ == "__main__":
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the broker's
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library may print is no answer
    try:
        main(sys.argv[1], sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(0)  # nobody is there who could be told
    except OSError as error:
        sys.exit(f"streams can't be sealed in {sys.argv[1]}: {error}")
