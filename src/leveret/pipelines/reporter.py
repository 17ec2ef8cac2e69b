"""Whom a pipeline tells how far it is, and who may ask it to end."""

from __future__ import annotations


class Reporter:
    """Hears what a running pipeline says. This one passes nothing on and never asks for the end."""

    @property
    def is_ended(self) -> bool:
        """Whether the pipeline should end: it finishes what it is at, so that the next run goes on from there."""
        return False

    def phase(self, text: str) -> None:
        """Something begins now."""

    def show(self, stage: str, done: int, total: int | None = None) -> None:
        """How many rows, messages or files a stage has done; total: of how many, None = nobody knows."""
