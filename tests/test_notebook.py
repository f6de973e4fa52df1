import json

import pytest

from conftest import ROOT

NOTEBOOK = ROOT / "docs" / "posgpt.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom_and_its_models_know_the_world(tmp_path, monkeypatch):
    nbformat, nbclient, _ = (
        pytest.importorskip(name, reason="pip install nbclient ipykernel ipywidgets")
        for name in ("nbformat", "nbclient", "ipykernel")
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for positions in ("learned", "rotary"):
        metrics = json.loads((tmp_path / "runs" / "notebook" / f"eval_{positions}" / "metrics.json").read_text())
        assert metrics["accuracy"] > 0.8
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 2
