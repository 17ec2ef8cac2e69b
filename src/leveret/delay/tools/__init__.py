"""What `leveret delay` does: create a layout, verify it, move what waits in it. Over AMQP, so on any broker."""

from leveret.delay.tools.creation import LayoutConflict, create
from leveret.delay.tools.mover import Mover, Progress, Summary
from leveret.delay.tools.verification import Finding, State, verify

__all__ = ["Finding", "LayoutConflict", "Mover", "Progress", "State", "Summary", "create", "verify"]
