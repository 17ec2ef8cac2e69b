"""What can go wrong in a run, in words for the person who started it."""


class DemoError(Exception):
    """The run can't start or can't go on; the text says why and what to do."""
