"""The painter: draws the punctuality while Spark computes it as a table. A process of its own."""

from __future__ import annotations

import sys

from leveret.demo.account.picture import draw, punctuality_by_hour
from leveret.demo.data import load_airlines
from leveret.demo.plan import DemoPlan


def main(plan: DemoPlan) -> None:
    """Draw the picture."""
    draw(punctuality_by_hour(plan.enriched), load_airlines(), plan.output / "punctuality.png")


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]))
