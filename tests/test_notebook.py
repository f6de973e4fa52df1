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


def check_predictions(folder):
    def read(name, table="results", asked="dev"):
        return pd.read_csv(folder / "predict" / name / asked / f"{table}.csv")

    hops, parity = (read(name).set_index("relation")["accuracy"] for name in ("two_hops", "parity"))
    assert hops[["birth year", "teacher", "teacher and birth year"]].min() > 0.7 > 0.4 > hops["teacher's birth year"]
    assert parity["birth year and parity"] > 0.8 > parity["birth year's parity"]
    curves = read("people", "curves")
    steps = curves[curves["accuracy"] >= 0.5].groupby("row")["step"].min()
    assert steps["200 people"] > 1.3 * steps["100 people"]
    assert read("strangers")["accuracy"].min() > 0.8
    answers = read("edit", "answers").set_index(["row", "seed", "relation", "title"])["answer"]
    assert answers["edited", 1, "birthplace", "Verette Malholm"] == "Tokyo"
    positions = read("positions").groupby("row")["accuracy"].mean()
    assert positions["alibi"] > positions["learned"] + 0.2
    assert read("capacity", asked="training")["accuracy"].mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, check, number",
    [
        ("posgpt", check_accuracy, 2),
        ("gym", check_inverse_search, 2),
        ("copying", check_copying, 2),
        ("predict", check_predictions, 8),
    ],
)
def test_the_notebooks_run_from_top_to_bottom_and_their_models_answer_as_told(
    tmp_path, monkeypatch, name, check, number
):
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
    assert len(pictures) == number
