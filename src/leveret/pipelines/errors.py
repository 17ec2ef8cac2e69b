"""What a pipeline ends with when it can't go on."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

_REASON: Final = re.compile(r"(?:^|: )(?:leveret(?:\.\w+)+|ValueError): (.+)")


class PipelineError(Exception):
    """Its text says what is wrong and what to do about it, for people: no traceback belongs to it."""


def cause(failure: BaseException) -> str:
    """The line of an error of Spark's that tells a person most: the reason that an error of ours gives, else what a
    Python traceback ends with, else the first."""
    lines = str(failure).splitlines()
    for line in lines:
        if (found := _REASON.search(line)) is not None:
            return found[1]
    ends = [line for above, line in pairwise(lines) if above.startswith("  ") and line and not line[0].isspace()]
    return (ends or lines or [type(failure).__name__])[0]
