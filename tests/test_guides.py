"""The guides' code blocks run as they are written, with a smaller model."""

import re

from data_scripts.questions import load_questions
from modeling_posgpt import position_embeddings
from posgpt import cli
from posgpt.training.architecture import CHOICES
from test_readme import list_blocks, list_commands, make_quick


def run_commands(run, document) -> list[str]:
    """Run a document's commands, quickly; return what each printed."""
    return [run(cli, *make_quick(command, arguments)) for command, *arguments in list_commands(document)]


def test_the_guide_to_your_own_data(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write, ask = [block for block in list_blocks("docs/your_own_data.md") if "import " in block]
    exec(write, {})
    preview, _, evaluated, asked, held_out, _, report = run_commands(run, "docs/your_own_data.md")
    assert "document The Last Harbour | Directed by " in preview
    assert re.search(r"^asked    \w+ \w+ \(director\), 19\d\d \(release year\)$", preview, re.M)
    assert "| director " in evaluated and "| release year " in evaluated
    assert "| Who directed The Golden Bridge? | " in asked and "not trained" not in asked
    assert len(load_questions("dev.tsv")) == 20
    assert "documents.jsonl has 30 lines" in held_out
    assert "Report: runs/films_report/report.html" in report
    exec(ask, {})
    assert capsys.readouterr().out.count("('") == 2


def test_the_guide_to_a_new_position_embedding(run, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in world.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    # As if they stood in the module, until the test ends.
    names = CHOICES["position_embedding_type"]
    monkeypatch.setitem(position_embeddings.POSITION_EMBEDDINGS, "logarithmic", None)
    names.append("logarithmic")
    try:
        blocks = [block for block in list_blocks("docs/new_position_embedding.md") if not block.startswith("posgpt ")]
        exec("\n\n".join(blocks), dict(vars(position_embeddings)))
        assert len(blocks) == 3
        *_, evaluated = run_commands(run, "docs/new_position_embedding.md")
    finally:
        names.remove("logarithmic")
    assert "of 17" in evaluated
