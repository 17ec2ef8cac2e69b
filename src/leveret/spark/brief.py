"""Errors of which Spark shows little but the reason."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

HIDDEN: Final = "SPARK_HIDE_TRACEBACK"
"""Where it is set, a worker of Spark's reports an error without the frames, which stand before the reason otherwise."""


def brief(*errors: type[Exception]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a method, or a generator, that Spark calls: errors whose text says all leave it without the way to them, and
    without what they came from. Spark prints the traceback before the reason, in the log and in its own exception."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(method):

            @functools.wraps(method)
            def yielding(*args: P.args, **kwargs: P.kwargs) -> Any:
                try:
                    yield from method(*args, **kwargs)
                except errors as error:
                    raise _bare(error) from None

            return cast(Callable[P, R], yielding)

        @functools.wraps(method)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(*args, **kwargs)
            except errors as error:
                raise _bare(error) from None

        return called

    return decorate


def _bare(error: Exception) -> Exception:
    """Without its traceback. Spark's own frames can only be left out by its worker, which ends with the one error."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name.startswith("pyspark."):
        os.environ[HIDDEN] = "1"
    return error.with_traceback(None)
