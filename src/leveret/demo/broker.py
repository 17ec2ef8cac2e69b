"""Brokers of the demo's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from leveret.demo.errors import DemoError
from leveret.testing.processes import LeveretProcess, ProcessFailed


@contextmanager
def broker_process(name: str, data: Path, log: Path, arguments: Sequence[str] = ()) -> Iterator[LeveretProcess]:
    """``leveret serve`` on a free port of 127.0.0.1 for as long as the context lasts.

    Args:
        name: what to call it if it fails.
        data: its data directory, which stays.
        log: where its last lines of output go at the end.
        arguments: more options of ``leveret serve``.

    Raises:
        DemoError: it did not start, or did not stop as it should.
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
    """The same for the only broker of a run; yields its URL."""
    with broker_process("broker", data, log) as process:
        yield process.url
