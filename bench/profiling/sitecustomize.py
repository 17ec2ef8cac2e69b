"""Python imports this first in each process of a profiled demo: it counts what the process computes, by CPU time.

The kernel sends SIGPROF after each 5 ms of CPU time (setitimer(2)); the innermost frame that belongs to a part of the
pipeline says what was computed. Counts go to a file in time, since Spark kills its workers.
"""

import collections
import os
import re
import signal
import sys
from types import FrameType

STEP_S = 0.005
SAVED_EVERY = 20

PARTS = [
    (r"importlib\._bootstrap", "start of Python"),
    (r"leveret/demo/lookups\.py:objects", "JSON"),
    (r"leveret/spark/(rpc|calls)", "RPC"),
    (r"leveret/spark/(streams|rows|segments)", "source"),
    (r"leveret/(spark/sink|demo/timed)", "sink"),
    (r"leveret/demo/roles/role|pyarrow/parquet", "records of the account"),
    (r"pyspark/", "Arrow to and from Java"),
]
_counts: collections.Counter[str] = collections.Counter()


def _part(frame: FrameType | None) -> str:
    """Return the part to which the innermost known frame belongs; imports count as such whatever they import."""
    stack = []
    while frame is not None:
        stack.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        frame = frame.f_back
    if any("importlib._bootstrap" in line for line in stack):
        return PARTS[0][1]
    return next((part for line in stack for form, part in PARTS if re.search(form, line)), "the rest")


def _sample(_number: int, frame: FrameType | None) -> None:
    _counts[_part(frame)] += 1
    if _counts.total() % SAVED_EVERY == 0:
        with open(f"{os.environ['LEVERET_PROFILE']}/{os.getpid()}", "w") as file:
            file.writelines(f"{count * STEP_S}\t{part}\n" for part, count in _counts.items())


def _begin() -> None:
    _counts.clear()
    signal.signal(signal.SIGPROF, _sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, STEP_S, STEP_S)


if "LEVERET_PROFILE" in os.environ and "pyspark" in " ".join(sys.orig_argv):
    _begin()
    os.register_at_fork(after_in_child=_begin)
