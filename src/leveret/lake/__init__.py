"""Streams as tables: a separate process seals native segments as Parquet files (extra leveret[lake]).

Programs read them, together with what is not sealed yet, by :func:`dataset`, :func:`lazy_frame`, :func:`relation`
and :func:`data_frame`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.lake.live import StreamUnreadable
    from leveret.lake.reading import data_frame, dataset, lazy_frame, relation

__all__ = ["StreamUnreadable", "data_frame", "dataset", "lazy_frame", "relation"]


def __getattr__(name: str) -> Any:
    """Import the reader when it is asked for: the sealing process does without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from leveret.lake import reading

    return getattr(reading, name)
