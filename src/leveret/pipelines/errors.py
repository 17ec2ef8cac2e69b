"""The error that ends a pipeline."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

_REASON: Final = re.compile(r"(?:^|: )(?:leveret(?:\.\w+)+|ValueError): (.+)")


class PipelineError(Exception):
    """A pipeline cannot go on. The text tells the user what is wrong and what to do, without a traceback."""


def cause(failure: BaseException) -> str:
    """Return the most helpful line of a Spark error: the reason in a leveret error, else the line that ends a Python
    traceback, else the first."""
    lines = str(failure).splitlines()
    for line in lines:
        if (found := _REASON.search(line)) is not None:
            return found[1]
    ends = [line for above, line in pairwise(lines) if above.startswith("  ") and line and not line[0].isspace()]
    return (ends or lines or [type(failure).__name__])[0]
