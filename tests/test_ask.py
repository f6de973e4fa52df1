import pytest
from transformers import AutoTokenizer

from modeling_posgpt import Answer, PosGPTForCausalLM
from posgpt import cli
from study_helpers import read_rows


def test_questions_are_answered_as_the_model_answers_them_with_notes_on_what_it_was_not_trained_on(
    run, tiny_pretrained
):
    folder = tiny_pretrained["rotary"]
    questions = ["Where was Ada Berg born?", "Who is 中?"]
    unknown, untrained, _, _, *rows = run(
        cli, "ask", "--model_name_or_path", folder, "--questions", *questions
    ).splitlines()
    assert "'中' × 1" in unknown and "asked 'Where was NAME born?', not 'Who is 中?'" in untrained
    model, tokenizer = PosGPTForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for row, question, answer in zip(rows, questions, model.answer(questions, tokenizer), strict=True):
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert cells == [question, answer.text.replace("\n", " ").strip(), f"{answer.probability:.1%}"]


def test_the_corpus_shows_which_answers_are_made_up(run, tiny_pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(
        PosGPTForCausalLM, "answer", lambda self, questions, *_: [Answer("Rome", 0.5)] * len(questions)
    )
    corpus = tmp_path / "wiki.txt"
    corpus.write_text("Ada Berg. Born in Rome .\nBo Ek. Born in Oslo .\nAda Berg. Sang .\nAda Berg. Died in Rome .\n")
    questions = [f"Where was {name} born?" for name in ("Ada Berg", "Bo Ek", "Cy Dahl")]
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--questions", *questions, "Who is Ada?"]
    rows = read_rows(run(cli, "ask", *arguments, "--corpus_file", corpus))
    assert [rows[question][-1] for question in [*questions, "Who is Ada?"]] == [
        "1, 4", "not in its document", "no document of this title", "",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="none.txt: no such file"):
        run(cli, "ask", *arguments, "--corpus_file", tmp_path / "none.txt")


@pytest.mark.parametrize(
    "questions, match",
    [
        ([""], "'' is not a question"),
        (["x" * 128], "128 characters .*; shorten it"),
        (["Where was Bo born?⁇"], "without the ⁇"),
        ("Where was Bo born?".split(), "'Where' is a word of a question; put each question in quotation marks"),
    ],
)
def test_what_cannot_be_asked_is_refused(run, tiny_pretrained, questions, match):
    with pytest.raises(SystemExit, match=f"error: .*{match}"):
        run(cli, "ask", "--model_name_or_path", tiny_pretrained["rotary"], "--questions", *questions)
