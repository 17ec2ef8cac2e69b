"""The bill of materials: every possible part of a broker, the parts that come with leveret, no development tools."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .test_wheels import NEEDED

TOOL = Path(__file__).parents[2] / "tools" / "sbom.py"


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vendor(tmp_path: Path, text: str) -> Path:
    (tmp_path / "chart").mkdir()
    (tmp_path / "chart" / "VERSION.md").write_text(text)
    (tmp_path / "chart" / "chart.js").write_text("draw()")
    return tmp_path


def test_what_a_broker_consists_of(sbom: ModuleType, tmp_path: Path) -> None:
    """The tool has checked it against the schema."""
    place = vendor(tmp_path, "Chart 1.6.32, by Somebody, MIT (LICENSE). Unchanged.\n")
    text = sbom.bill(place)
    assert sbom.bill(place) == text
    found: dict[str, Any] = json.loads(text)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["name"] == "leveret"
    parts = {part["name"]: part for part in found["components"]}
    why = {name: part["properties"][0]["value"] for name, part in parts.items()}
    assert {name for name, reason in why.items() if reason == "leveret"} == NEEDED
    assert (why["starlette"], why["pyarrow"]) == ("leveret", "leveret[iceberg], leveret[lake]")
    assert not {"pytest", "mypy", "mkdocs", "pika"} & set(parts)
    chart = parts["Chart"]
    assert chart["licenses"] == [{"license": {"id": "MIT"}}]
    assert [file["name"] for file in chart["components"]] == ["VERSION.md", "chart.js"]
    edges = {edge["ref"].partition("@")[0]: edge.get("dependsOn", []) for edge in found["dependencies"]}
    assert chart["bom-ref"] in edges["pkg:pypi/leveret"]
    assert parts["markdown-it-py"]["bom-ref"] in edges["pkg:pypi/rich"]


def test_all_that_comes_with_the_web_page_is_in_it(sbom: ModuleType) -> None:
    names = {directory.name for directory in sbom.VENDOR.glob("*") if directory.is_dir()}
    found = json.loads(sbom.bill())
    properties = [each for part in found["components"] for each in part.get("properties", ())]
    assert {each["value"] for each in properties if each["name"] == "leveret:vendored"} == names


def test_what_nobody_has_named_is_refused(sbom: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="must begin with"):
        sbom.bill(vendor(tmp_path, "a chart"))
