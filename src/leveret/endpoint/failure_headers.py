"""Headers that describe a failure, as NServiceBus's tools (ServicePulse, ServiceControl) read them."""

from __future__ import annotations

import traceback
from typing import Final

from leveret.delay.instant import as_header, now
from leveret.endpoint import headers
from leveret.endpoint.message import MACHINE
from leveret.wire.table import Value

TEXT_MAX: Final = 4096
STACK_MAX: Final = 16384
"""Maximum number of characters. All headers of a message are in one frame, which brokers limit to 128 KiB."""

ROOM_MIN: Final = 8192
"""Maximum size in bytes of all failure headers without the stack, if the texts are ASCII."""

_CUT: Final = "\n  [...]\n"


def failure_headers(
    error: BaseException, queue: str, immediate_retries: int, delayed_retries: int, room: int = STACK_MAX + ROOM_MIN
) -> dict[str, Value]:
    """Return the headers that are added to a message in the error queue.

    queue is the one in which it failed, immediate_retries the number in the last round, delayed_retries the number of
    earlier rounds. room is the size in bytes available for these headers; the stack is shortened to fit.
    """
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    told: dict[str, Value] = {
        headers.FAILED_QUEUE: queue,
        headers.TIME_OF_FAILURE: as_header(now()),
        headers.PROCESSING_ENDPOINT: queue,
        headers.PROCESSING_MACHINE: MACHINE,
        headers.EXCEPTION_TYPE: _type_name(error),
        headers.EXCEPTION_MESSAGE: shortened(str(error), TEXT_MAX),
        headers.EXCEPTION_SOURCE: _source(error),
        headers.EXCEPTION_STACK: shortened(
            "".join(traceback.format_exception(error)), max(0, min(STACK_MAX, room - ROOM_MIN))
        ),
        headers.FAILED_AFTER_IMMEDIATE: str(immediate_retries),
        headers.FAILED_AFTER_DELAYED: str(delayed_retries),
    }
    if inner is not None:
        told[headers.EXCEPTION_INNER_TYPE] = _type_name(inner)
    return told


def shortened(text: str, length_max: int) -> str:
    """Return the text, without its middle if it is too long: both ends of a stack are the most useful.

    Characters that UTF-8 cannot encode are replaced; otherwise the message could not be sent.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= length_max:
        return text
    half = max(0, (length_max - len(_CUT)) // 2)
    return text[:half] + _CUT + text[len(text) - half :]


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _source(error: BaseException) -> str:
    """Return the name of the module that raised the error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return str(last.tb_frame.f_globals.get("__name__", "")) if last is not None else ""
