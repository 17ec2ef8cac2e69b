"""What can go wrong in a run, in words for the person who started it."""

from leveret.pipelines.errors import PipelineError


class DemoError(PipelineError):
    """The run can't start or can't go on; the text says why and what to do."""
