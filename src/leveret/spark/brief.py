"""Short error reports: Spark prints only the reason, without the traceback."""

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
"""Environment variable: if it is set, a Spark worker reports an error without the stack frames before the reason."""


def brief(*errors: type[Exception]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a decorator that raises these errors without traceback and cause.

    It is for methods and generators that Spark calls, and for errors whose text says everything: Spark prints the
    traceback before the reason, in the log and in its own exception.
    """

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
    """Return the error without its traceback. In a Spark worker, which ends after one error, also hide Spark's
    frames."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name.startswith(("pyspark.", "leveret.spark_daemon")):
        os.environ[HIDDEN] = "1"
    return error.with_traceback(None)
