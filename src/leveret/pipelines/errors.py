"""What a pipeline ends with when it can't go on."""

from __future__ import annotations

from itertools import pairwise


class PipelineError(Exception):
    """Its text says what is wrong and what to do about it, for people: no traceback belongs to it."""


def cause(failure: BaseException) -> str:
    """The line of an error of Spark's that tells a person most: what a Python traceback ends with, else the first."""
    lines = str(failure).splitlines()
    ends = [line for above, line in pairwise(lines) if above.startswith("  ") and line and not line[0].isspace()]
    return (ends or lines or [type(failure).__name__])[0]
