"""Errors of a run, explained to the person who started it."""

from leveret.pipelines.errors import PipelineError


class DemoError(PipelineError):
    """The run can't start or continue; the text says why, and what to do."""
