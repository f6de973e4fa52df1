"""Report on predictions, whoever made them: metrics, a chart and a page that opens without a server.

    posgpt report predictions.jsonl

A line of the file is a JSON object with `question`, `answer` and `reference`, the correct answer or a list of them; with a
`probability` from 0 to 1, also confidence is measured. `relation`, `title` and `group` are read, too (see `Prediction`).
`posgpt evaluate` writes such a file. With `--test_file`, it is a text file with one answer per line instead.
Writes `report.html`, `report.png` and `metrics.json`.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from data_scripts.documents import check_columns
from data_scripts.errors import BadInput
from data_scripts.files import check_is_folder_or_new, read_lines, write_file
from data_scripts.options import option, parse_options
from data_scripts.questions import load_questions
from data_scripts.relations import RELATIONS, find_relation
from posgpt.evaluation.arguments import METRICS_FILE, PAGE_FILE, ReportArguments
from posgpt.evaluation.data import EvaluationData
from posgpt.evaluation.evidence import find_documents
from posgpt.evaluation.predictions import ALL, TEST, Prediction, check_references, is_wording, read_predictions
from posgpt.evaluation.report import score_predictions
from posgpt.evaluation.scoring import format_accuracies, format_metrics
from posgpt.tables import format_table


@dataclass(kw_only=True)
class PredictionArguments(ReportArguments):
    """Which predictions, and where to write the report."""

    predictions_file: str = option(
        "A JSON Lines file of predictions; with test_file, a text file with one answer per line.", positional=True
    )
    test_file: str | None = option(
        "The TSV of the questions that a text file answers, with correct answers.", default=None
    )
    output_dir: str | None = option("Folder for the report (default: `report` beside the predictions).", default=None)


def complete(prediction: Prediction) -> Prediction:
    """Return a prediction with the relation and the title that its question shows, where it is of a known form."""
    relation = find_relation(prediction.question, RELATIONS.values())
    if relation is None:
        return prediction
    name = relation.name if prediction.relation == ALL else prediction.relation
    return replace(prediction, relation=name, title=prediction.title or relation.read_title(prediction.question))


def pair_answers(predictions_file: Path, test_file: str) -> list[Prediction]:
    """Return the lines of a text file as the answers to the questions of a TSV, which may be there with several correct ones."""
    questions = load_questions(test_file, answers=True)
    answers = [line.strip() for _, line in read_lines(predictions_file, "text file of answers")]
    if answers[0].startswith('{"'):
        raise BadInput(
            f"{predictions_file}: holds JSON Lines, which have their own references; leave --test_file out."
        )
    if len(answers) != len(questions):
        raise BadInput(
            f"{predictions_file}: has {len(answers)} lines, and {test_file} {len(questions)} questions; give one answer per line."
        )
    # As in `posgpt evaluate`, a question counts once.
    asked = {each.question: each for each in EvaluationData({TEST: questions}).questions}
    given: dict[str, str] = {}
    for text, answer in zip(questions.texts, answers, strict=True):
        if given.setdefault(text, answer) != answer:
            raise BadInput(
                f"{predictions_file}: answers {text!r} with {given[text]!r} and {answer!r}; give the same answer wherever it is asked."
            )
    return [replace(asked[text], answer=answer) for text, answer in given.items()]


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(PredictionArguments, argv)
    check_columns(arguments, arguments.corpus_file)
    file = Path(arguments.predictions_file)
    folder = check_is_folder_or_new(arguments.output_dir or file.parent / "report")
    if arguments.test_file:
        predictions = pair_answers(file, arguments.test_file)
    else:
        predictions = [complete(each) for each in read_predictions(file)]
    check_references(file, predictions)
    tested = {each.relation for each in predictions if each.group == TEST}
    for i, each in enumerate(predictions):
        if is_wording(each.group) and each.relation not in tested:
            if each.relation != ALL or len(tested) > 1:
                raise BadInput(
                    f"{file}, line {i + 1}: no question of the test has its relation, {each.relation!r}; name one that has."
                )
            predictions[i] = replace(each, relation=next(iter(tested)))
    needs_all = arguments.abstain_below is not None or any(
        each.group != TEST and not is_wording(each.group) for each in predictions
    )
    for i, each in enumerate(predictions, start=1):
        if each.probability is None and needs_all:
            raise BadInput(
                f"{file}, line {i}: no probability; --abstain_below and groups but {TEST!r} need one in each line."
            )
    documents, correct = None, defaultdict[str, list[str]](list)
    if arguments.corpus_file:
        titles = {each.title or each.question for each in predictions}
        documents = find_documents(arguments.corpus_file, titles, arguments)
        if not documents:
            raise BadInput(
                f"{arguments.corpus_file}: has no document of a title in {file}; give each line its `title`, or leave"
                " --corpus_file out."
            )
    for each in predictions:
        if each.group == TEST:
            correct[each.relation] += each.references
    # As training's answers are not known, the most frequent correct one stands for them.
    baselines = {name: {"baseline": Counter(answers).most_common(1)[0][0]} for name, answers in correct.items()}
    evaluation = score_predictions(predictions, arguments.abstain_below, documents, baselines)
    metrics = {"test_file": Path(arguments.test_file or file).name} | evaluation.list_figures()
    files = evaluation.render(metrics) | {METRICS_FILE: json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"}
    replaced = ", in place of an earlier one" if (folder / METRICS_FILE).exists() else ""
    for name, content in files.items():
        write_file(folder / name, content)
    print(format_accuracies(evaluation.relations, "the file"))
    print("\n" + format_table(("metric", "value"), format_metrics(evaluation.test).items()))
    print(f"Report: {folder / PAGE_FILE}{replaced}")
