"""The table of all checks, by subject."""

from __future__ import annotations

from typing import Final

from leveret.cli.doctor.check import Check
from leveret.cli.doctor.checks import access, consuming, delays, federation, node, policies, publishing, queues, routing

SUBJECTS: Final[dict[str, tuple[Check, ...]]] = {
    "Node": node.CHECKS,
    "Publishers": publishing.CHECKS,
    "Consumers": consuming.CHECKS,
    "Queues": queues.CHECKS,
    "Exchanges and dead letters": routing.CHECKS,
    "Policies": policies.CHECKS,
    "Federation": federation.CHECKS,
    "Delayed messages": delays.CHECKS,
    "Access": access.CHECKS,
}
CHECKS: Final[dict[str, Check]] = {check.id: check for some in SUBJECTS.values() for check in some}
