"""The notebook of examples/, from its first cell to its last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parents[2] / "examples" / "flights.ipynb"


def text(cell: Any) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


@pytest.mark.needs("minutes")
def test_the_notebook_runs(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # imported here, because it would cost each process that collects the tests seconds of processor time
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("LEVERET_URL", broker)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    assert "500 flights published" in text(cells["publish"])
    assert "flight." in text(cells["read"])
    assert "'rows': 500" in text(cells["archive"])
    assert "'dead_letters': 0" in text(cells["archive"])
    for origin in ("EWR", "JFK", "LGA"):
        assert origin in text(cells["sql"])
    assert any("image/png" in output.get("data", {}) for output in cells["chart"].outputs)
    assert list(tmp_path.glob("flights-lake/day=*/exchange=notebook/*.parquet"))
