"""The implementation of `leveret delay`: create a layout, verify it, move its messages, on any AMQP broker."""

from leveret.delay.tools.creation import LayoutConflict, create
from leveret.delay.tools.mover import Mover, Progress, Summary
from leveret.delay.tools.verification import Finding, State, verify

__all__ = ["Finding", "LayoutConflict", "Mover", "Progress", "State", "Summary", "create", "verify"]
