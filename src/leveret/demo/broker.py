"""A broker of the demo's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leveret.demo.errors import DemoError
from leveret.testing.processes import LeveretProcess, ProcessFailed


@contextmanager
def own_broker(data: Path, log: Path) -> Iterator[str]:
    """``leveret serve`` on a free port of 127.0.0.1 for as long as the context lasts.

    Args:
        data: its data directory, which stays.
        log: where its last lines of output go at the end.

    Yields:
        Its URL.

    Raises:
        DemoError: it did not start, or did not stop as it should.
    """
    broker = LeveretProcess(data)
    try:
        with broker:
            yield broker.url
    except ProcessFailed as error:
        raise DemoError(f"the broker failed: {error}") from error
    finally:
        log.write_text(broker.output)
