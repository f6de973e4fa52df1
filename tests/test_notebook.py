import json

import pandas as pd
import pytest

from conftest import ROOT


def check_accuracy(folder):
    for positions in ("learned", "rotary"):
        assert json.loads((folder / "notebook" / f"eval_{positions}" / "metrics.json").read_text())["accuracy"] > 0.8


def check_inverse_search(folder):
    table = pd.read_csv(folder / "gym" / "dev" / "results.csv").pivot_table("accuracy", "row", "relation")
    assert table[["birthplace", "birth year"]].min().min() > 0.8
    assert table["person born"]["facts as read"] < 0.1 and table["person born"]["names asked for, too"] > 0.7


def check_copying(folder):
    runs = pd.read_json(folder / "copying" / "runs.jsonl", lines=True).set_index("encoding")["exact"]
    # Of texts of eight letters, the longest in training, and of ten.
    eight, ten = ({encoding: exact[i] for encoding, exact in runs.items()} for i in (1, 2))
    assert set(ten) == {"none", "sinusoidal", "rotary", "alibi"} and min(eight.values()) > 0.9
    assert min(ten["none"], ten["alibi"]) > 0.5 and max(ten["rotary"], ten["sinusoidal"]) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, check", [("posgpt", check_accuracy), ("gym", check_inverse_search), ("copying", check_copying)]
)
def test_the_notebooks_run_from_top_to_bottom_and_their_models_answer_as_told(tmp_path, monkeypatch, name, check):
    nbformat, nbclient, _ = (
        pytest.importorskip(library, reason="pip install nbclient ipykernel ipywidgets")
        for library in ("nbformat", "nbclient", "ipykernel")
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check(tmp_path / "runs")
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 2
