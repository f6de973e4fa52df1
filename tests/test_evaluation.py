import json
import re

import pytest
import torch
import yaml

from data_scripts.errors import BadInput
from data_scripts.questions import load_questions
from modeling_posgpt import Answer, PosGPTForCausalLM
from posgpt.ask import AskingArguments, ask
from posgpt.evaluate import evaluate
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.predictions import read_predictions
from posgpt.evaluation.report import score_predictions


def test_a_model_computes_in_the_type_that_is_asked_for(world, tiny_pretrained, monkeypatch):
    arguments = EvaluationArguments(
        test_file=[str(world / "birth_dev.tsv")], model_name_or_path=str(tiny_pretrained["rotary"]),
        dtype="bfloat16", predictions_file="answers.txt",
    )  # fmt: skip
    types = []
    monkeypatch.setattr(
        PosGPTForCausalLM,
        "answer",
        lambda self, questions, *_: types.append(self.dtype) or [Answer("Rome", 0.5)] * len(questions),
    )
    monkeypatch.setattr("posgpt.evaluate.write_results", lambda *_: [])
    evaluate(arguments)
    assert types == [torch.bfloat16]


def test_the_functions_behind_the_commands_return_values(world, tiny_pretrained, tmp_path, capsys):
    model, questions = str(tiny_pretrained["rotary"]), load_questions(world / "birth_dev.tsv")
    arguments = {"model_name_or_path": model, "max_new_tokens": 4}
    result = evaluate(
        EvaluationArguments(test_file=[str(world / "birth_dev.tsv")], output_dir=str(tmp_path), **arguments)
    )
    assert [each.reference for each in result.predictions] == questions.answers
    assert result.metrics == json.loads((tmp_path / "metrics.json").read_text()) and result.metrics["total"] == 17
    assert read_predictions(tmp_path / "predictions.jsonl") == result.predictions
    # Relations of a file keep what the model's own of the same name are compared with.
    (relations := tmp_path / "relations.yml").write_text("birthplace: {wordings: ['Where was {title} born?']}")
    options = {"test_file": [str(world / "birth_dev.tsv")], "relations": str(relations), "output_dir": str(tmp_path)}
    assert '"London" for everyone' in str(evaluate(EvaluationArguments(**options, **arguments)))
    answers = ask(AskingArguments(model_name_or_path=model, questions=questions.texts[:2]))
    assert [each.question for each in answers.predictions] == questions.texts[:2]
    assert [each.title for each in answers.predictions] == questions.titles[:2]
    assert not capsys.readouterr().out
    # The page of other predictions does not stay beside these.
    (tmp_path / "report.html").write_text("of a model")
    (tmp_path / "run.json").write_text("{}")
    everyone = evaluate(
        EvaluationArguments(test_file=[str(world / "birth_dev.tsv")], baseline="Z\udcfcrich", output_dir=str(tmp_path))
    )
    assert not (tmp_path / "report.html").exists() and not (tmp_path / "run.json").exists()
    assert {each.answer for each in everyone.predictions} == {"Z\udcfcrich"}, "what no encoding has ends no evaluation"
    assert (tmp_path / "predictions.txt").read_text() == "Z\\udcfcrich\n" * 17
    # Nor do other predictions, where these go to another file.
    elsewhere = str(tmp_path / "london.txt")
    evaluate(
        EvaluationArguments(
            test_file=[str(world / "birth_dev.tsv")],
            baseline="London",
            output_dir=str(tmp_path),
            predictions_file=elsewhere,
        )
    )
    assert not (tmp_path / "predictions.txt").exists() and (tmp_path / "london.txt").exists()
    # What no evaluation wrote is not replaced.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.json").write_text("{}")
    with pytest.raises(BadInput, match="other/metrics.json: no evaluation wrote it; give another folder"):
        evaluate(EvaluationArguments(test_file=[elsewhere], baseline="London", output_dir=str(tmp_path / "other")))


def test_titles_are_asked_as_the_corpus_spells_them_and_what_cannot_be_written_is_named(
    world, tiny_pretrained, tmp_path
):
    name, test = (world / "wiki.txt").read_text().split(". ")[0], tmp_path / "test.tsv"
    test.write_text(f"Where was {name.lower()} born?\t{'Rome' * 40}\n")
    options = {"model_name_or_path": str(tiny_pretrained["rotary"]), "output_dir": str(tmp_path / "out")}
    result = evaluate(EvaluationArguments(test_file=[str(test)], corpus_file=str(world / "wiki.txt"), **options))
    assert [each.title for each in result.predictions] == [name]
    assert "1 titles differ from the corpus's in case" in str(result)
    assert "1 of 1 answers do not fit behind their questions" in str(result)


def test_any_of_several_answers_is_correct_and_all_are_asked_for(world, tiny_pretrained, tmp_path, monkeypatch):
    best = {"Ada": [("Rome", 0.5), ("Oslo", 0.2), ("Bern", 0.1)], "Bo": [("Paris", 0.5), ("Oslo", 0.2)]}
    asked = {f"Where was {name} born?": [Answer(*each) for each in answers] for name, answers in best.items()}
    monkeypatch.setattr(
        PosGPTForCausalLM, "list_answers", lambda _, texts, __, number, *___: [asked[each][:number] for each in texts]
    )
    pairs = [("Ada", "Bern"), ("Bo", "Paris"), ("Ada", "Oslo"), ("Ada", "Bern"), ("Ada", "Rome"), ("Bo", "Lund")]
    file = tmp_path / "test.tsv"
    file.write_text("".join(f"Where was {name} born?\t{answer}\n" for name, answer in pairs))
    options = {"test_file": [str(file)], "output_dir": str(tmp_path / "eval")}
    result = evaluate(EvaluationArguments(model_name_or_path=str(tiny_pretrained["rotary"]), **options))
    assert [each.reference for each in result.predictions] == [["Bern", "Oslo", "Rome"], ["Paris", "Lund"]]
    assert result.predictions[0].alternatives == {"Oslo": 0.2, "Bern": 0.1}
    assert (result.metrics["correct"], result.metrics["total"], result.metrics["recall"]) == (2, 2, 0.75)
    assert "recall of all correct answers, where a question has several: 75.0%" in str(result)
    assert (tmp_path / "eval" / "predictions.txt").read_text().split() == "Rome Paris Rome Rome Rome Paris".split()
    assert read_predictions(tmp_path / "eval" / "predictions.jsonl") == result.predictions
    file.write_text("Where was Ada born?\tRome\nWhere was Bo born?\tPáris\nWhere was Bo born?\tPARIS\n")
    again = evaluate(EvaluationArguments(model_name_or_path=str(tiny_pretrained["rotary"]), **options))
    assert "1 answers that count as wrong differ" in str(again), "a question counts once"
    file.write_text("".join(f"Where was {name} born?\t{answer}\n" for name, answer in pairs))
    everyone = evaluate(EvaluationArguments(baseline="Oslo", **options))
    assert everyone.metrics["correct"] == 1 and everyone.metrics["recall"] is None


def test_a_test_is_also_asked_in_other_wordings(world, tiny_pretrained, tmp_path, monkeypatch):
    known = {"Where was Ada born?": "Bern", "Ada's birthplace:": "Bern", "Bo's birthplace:": "Paris"}
    monkeypatch.setattr(
        PosGPTForCausalLM, "answer", lambda _, texts, *__: [Answer(known.get(each, ""), 0.5) for each in texts]
    )
    test, wordings = tmp_path / "test.tsv", tmp_path / "wordings.yml"
    test.write_text("Where was Ada born?\tBern\nWhere was Bo born?\tParis\n")
    forms = ["{title}'s birthplace:", "Name the birthplace of {title}."]
    wordings.write_text(yaml.safe_dump({"birthplace": {"wordings": forms}}))
    options = {"test_file": [str(test)], "model_name_or_path": str(tiny_pretrained["rotary"])}
    result = evaluate(EvaluationArguments(other_wordings=str(wordings), output_dir=str(tmp_path / "eval"), **options))
    assert result.metrics["correct"] == 1
    assert [each["accuracy"] for each in result.metrics["wordings"].values()] == [1.0, 0.0]
    assert "| PosGPT, asked {title}'s birthplace: | 100.0% |" in " ".join(str(result).split())
    assert (tmp_path / "eval" / "predictions.txt").read_text() == "Bern\n\n"
    read = read_predictions(tmp_path / "eval" / "predictions.jsonl")
    assert [(each.group, each.title) for each in read[2:4]] == [(forms[0], "Ada"), (forms[0], "Bo")]
    assert score_predictions(read).relations["birthplace"]["wordings"] == result.metrics["wordings"]

    for content, match in (
        ({"year": {"wordings": forms}}, "asks for no 'year'; remove it, or choose from 'birthplace'"),
        ({"birthplace": {"wordings": forms[:1] * 2}}, "is there twice"),
        ({"birthplace": {"wordings": ["{title} " + "x" * 500]}}, "Ada.*no room for an answer"),
    ):
        wordings.write_text(yaml.safe_dump(content))
        with pytest.raises(BadInput, match=match):
            evaluate(EvaluationArguments(other_wordings=str(wordings), output_dir=str(tmp_path / "no"), **options))
    with pytest.raises(BadInput, match="asks no model"):
        evaluate(EvaluationArguments(test_file=[str(test)], other_wordings=str(wordings), baseline="Bern"))
    assert not (tmp_path / "no").exists()
    # Of two wordings of a test, a title's questions are one in a third wording; characters that a model has not read are named.
    both, relations = tmp_path / "both.tsv", tmp_path / "relations.yml"
    both.write_text(test.read_text() + "Ada's birthplace:\tBern\n")
    relations.write_text(yaml.safe_dump({"birthplace": {"wordings": ["Where was {title} born?", forms[0]]}}))
    wordings.write_text(yaml.safe_dump({"birthplace": {"wordings": ["出生地 {title}"]}}))
    options |= {"test_file": [str(both)], "relations": str(relations), "predictions_file": str(tmp_path / "all.txt")}
    result = evaluate(EvaluationArguments(other_wordings=str(wordings), **options))
    assert result.metrics["total"] == 3 and result.metrics["wordings"]["出生地 {title}"]["total"] == 2
    assert re.search("^'出生地 .*do(?:es)? not know", str(result), re.M)
    test.write_text("Where was Ada born?\nWhere was Bo born?\n")
    with pytest.raises(BadInput, match="has no answers to compare with"):
        evaluate(EvaluationArguments(other_wordings=str(wordings), **options | {"test_file": [str(test)]}))
