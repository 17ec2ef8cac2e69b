"""The part that is too slow for each run (`make soak`): the demo on a cluster, with faults that its account finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import demo, report

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_injected_faults_are_found_by_the_account_and_by_the_audit(tmp_path: Path) -> None:
    done = demo(tmp_path, "--federated", "--cluster", "--inject", "duplicated", "--inject", "early")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "it does not add up" in done.stdout
    stages = report(tmp_path)["stages"]
    assert len(stages["crossed"]["duplicated"]) == 1
    assert len(stages["delivered"]["early"]) == 1
    assert not any(stage["lost"] or stage["unexpected"] for stage in stages.values())
