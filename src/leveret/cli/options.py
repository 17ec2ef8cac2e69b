"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def options(*given: Function) -> Callable[[Function], Function]:
    """Several click options as one decorator, listed in this order."""

    def add(function: Function) -> Function:
        for option in reversed(given):
            function = option(function)
        return function

    return add
