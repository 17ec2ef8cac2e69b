"""Progress reports of a pipeline, and requests to end it."""

from __future__ import annotations


class Reporter:
    """Receives a running pipeline's progress. This base class ignores it and never requests the end."""

    @property
    def is_ended(self) -> bool:
        """Whether the pipeline should end after its current step, so that the next run resumes there."""
        return False

    def phase(self, text: str) -> None:
        """Report that a phase begins."""

    def show(self, stage: str, done: int, total: int | None = None) -> None:
        """Report how many rows, messages or files a stage has done, and the total (None if unknown)."""
