"""All commands of `leveret ctl`, as data, in one module per subject."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import Spec
from leveret.cli.ctl.tables import (
    absent,
    access,
    delayed,
    diagnostics,
    drain,
    federation,
    listings,
    looking,
    metrics,
    node,
    objects,
    policies,
    publishers,
    stages,
    super_streams,
    upgrade,
)

CTL: Final[dict[str, Spec]] = {
    spec.name: spec
    for table in (
        node.SPECS, access.SPECS, listings.SPECS, policies.SPECS, federation.SPECS, objects.SPECS, delayed.SPECS,
        looking.SPECS, drain.SPECS, super_streams.SPECS, stages.SPECS, publishers.SPECS, metrics.SPECS, upgrade.SPECS,
        absent.SPECS,
    )
    for spec in table
}
"""The commands of rabbitmqctl, and a few of leveret's own."""

DIAGNOSTICS: Final[dict[str, Spec]] = {spec.name: spec for spec in diagnostics.SPECS} | {
    name: spec for name, spec in CTL.items() if name in diagnostics.SHARED
}
"""The commands of rabbitmq-diagnostics."""

UPGRADE: Final[dict[str, Spec]] = {spec.name: spec for spec in upgrade.UPGRADE_SPECS} | {
    name: spec for name, spec in CTL.items() if name in upgrade.SHARED
}
"""The commands of rabbitmq-upgrade."""
