"""Brokers started by the demo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from leveret.demo.errors import DemoError
from leveret.testing.processes import LeveretProcess, ProcessFailed


@contextmanager
def broker_process(name: str, data: Path, log: Path, arguments: Sequence[str] = ()) -> Iterator[LeveretProcess]:
    """Run ``leveret serve`` on a free port of 127.0.0.1 within the context.

    Args:
        name: its name in error messages.
        data: its data directory, which is kept.
        log: the file for its last lines of output.
        arguments: more options of ``leveret serve``.

    Raises:
        DemoError: it did not start or stop properly.
    """
    process = LeveretProcess(data, arguments=arguments)
    try:
        with process:
            yield process
    except ProcessFailed as error:
        raise DemoError(f"the {name} failed: {error}") from error
    finally:
        log.write_text(process.output)


@contextmanager
def own_broker(data: Path, log: Path) -> Iterator[str]:
    """Run the only broker of a run within the context; yields its URL."""
    with broker_process("broker", data, log) as process:
        yield process.url
