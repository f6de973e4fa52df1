"""Whether finetuning on one question corrects one fact, and what else it changes.

    posgpt study corrections --models runs/a runs/b --data_dir data

For each question of dev's first relation, a model is finetuned on this question alone, with another answer than its own: one that training
questions have. Then all of dev is asked. Of the corrections:

- taken (efficacy, as model editing calls it): the question has the new answer;
- reworded (generalization): so has the question in other words (`other_wordings.yml`); the model gave both the same answer before;
- others changed (specificity): how many answers about other titles are no longer as before, and spoiled, how many of these were correct.

These three are what Meng et al. 2022 (arXiv 2202.05262) ask of an edit.

With several models, the table says how many answers differ between two of them, which is what another seed changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
from accelerate import PartialState
from tqdm import tqdm

from data_scripts.errors import BadInput
from data_scripts.files import DEV_FILE, TRAIN_FILE, WORDINGS_FILE, check_is_folder_or_new, write_file
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import Questions, load_questions
from data_scripts.relations import load_relations, read_relations
from data_scripts.words import has_words
from posgpt.evaluation.data import EvaluationData
from posgpt.evaluation.predictions import TEST
from posgpt.finetune import finetune
from posgpt.plots import BLUE, make_figure, save_picture
from posgpt.tables import write_table
from posgpt.training.saved_models import load_model


@dataclass
class CorrectionArguments:
    """Which models to correct, and how."""

    models: list[str] = option("PosGPTs that are asked the same: folders, or names on the hub.")
    data_dir: str = option(
        f"Folder with {TRAIN_FILE}, {DEV_FILE} and, if questions have other words, {WORDINGS_FILE}."
    )
    learning_rate: Annotated[float, Range(0)] = option("AdamW's, constant.", default=1e-5)
    max_steps: Annotated[int, Range(1)] = option("Optimizer steps of each correction.", default=25)
    kept_pairs: Annotated[int, Range(0)] = option(
        "Training pairs that are read beside the question in each step, drawn anew for each correction.", default=0
    )
    output_dir: str = option("Folder for table, chart and corrections.csv.", default="runs/corrections")


def ask(model: Any, tokenizer: Any, texts: Sequence[str]) -> dict[str, str]:
    """Return a model's answer to each text."""
    answers = model.to(PartialState().device).answer(texts, tokenizer)
    return {text: answer.text for text, answer in zip(texts, answers, strict=True)}


def correct(name: str, pairs: Sequence[str], arguments: CorrectionArguments) -> tuple[Any, Any]:
    """Return a model that has been finetuned on the lines of a TSV, all in each step, and its tokenizer."""
    with TemporaryDirectory() as folder:
        file = Path(folder, TRAIN_FILE)
        write_file(file, "".join(f"{line}\n" for line in pairs))
        corrected = finetune(
            "windows",
            model_name_or_path=name,
            train_file=str(file),
            output_dir=str(Path(folder, "model")),
            learning_rate=arguments.learning_rate,
            max_steps=arguments.max_steps,
            per_device_train_batch_size=len(pairs),
            lr_scheduler_type="constant",
            warmup_steps=0,
            weight_decay=0.0,
            save_strategy="no",
            report_to="none",
            quiet=True,
        )
    return corrected.model, corrected.tokenizer


def correct_facts(
    name: str,
    before: dict[str, str],
    asked: Questions,
    train: Questions,
    other_words: dict[str, str],
    arguments: CorrectionArguments,
) -> Iterator[dict[str, Any]]:
    """Yield a line of `corrections.csv` for each question of the first relation; `reworded` is None if it is not asked.

    Args:
        before: The model's answers to all questions, also in other words.
        other_words: By question, the same in other words.
    """
    questions = EvaluationData({TEST: asked}).questions
    own = [each for each in questions if each.relation == questions[0].relation]
    candidates = {
        answer for each in train.relations if each.name == own[0].relation for answer in train.select(each).answers
    }
    for number, each in enumerate(tqdm(own, desc=name, unit="correction", disable=None)):
        others = [other for other in questions if not has_words(other.title or "", each.title or "")]
        rng = np.random.default_rng(number)
        left = sorted(candidates - {before[each.question], *each.references})
        if not left:
            raise BadInput(f"{train.path}: has no other answer to {each.question!r} to teach; give more pairs.")
        new = str(rng.choice(left))
        kept = train.take(rng.permutation(len(train))[: arguments.kept_pairs].tolist())
        pairs = [
            *replace(asked.take([asked.texts.index(each.question)]), answers=[new]).format_lines(),
            *kept.format_lines(),
        ]
        after = ask(*correct(name, pairs, arguments), list(before))
        changed = [other for other in others if after[other.question] != before[other.question]]
        line: dict[str, Any] = {"model": name, "title": each.title, "before": before[each.question], "new": new}
        again = other_words.get(each.question, "")
        is_reworded = before.get(again) == before[each.question]
        line |= {"taken": after[each.question] == new, "reworded": after[again] == new if is_reworded else None}
        line |= {"others": len(others), "changed": len(changed)}
        yield line | {"spoiled": sum(before[other.question] in other.references for other in changed)}


def describe_model(lines: pd.DataFrame) -> dict[str, str]:
    """Return a model's cells, the means of its lines of `corrections.csv`; with the standard error over corrections."""
    reworded = lines["reworded"].dropna().astype(float)
    error = lines["changed"].sem() if len(lines) > 1 else 0.0
    return {
        "model": str(lines["model"].iloc[0]),
        "taken": f"{lines['taken'].mean():.1%} of {len(lines)}",
        "reworded": f"{reworded.mean():.1%} of {len(reworded)}" if len(reworded) else "",
        "others changed": f"{lines['changed'].mean():.1f} ± {error:.1f} of {lines['others'].mean():.0f}",
        "spoiled": f"{lines['spoiled'].mean():.1f}",
    }


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(CorrectionArguments, argv)
    output_dir, data_dir = check_is_folder_or_new(arguments.output_dir), Path(arguments.data_dir)
    models = {name: load_model(name) for name in arguments.models}
    known = [relation for model, _ in models.values() for relation in read_relations(model.config.relations)]
    asked, train = (load_questions(data_dir / name, answers=True, known=known) for name in (DEV_FILE, TRAIN_FILE))
    if arguments.kept_pairs > len(train):
        raise BadInput(f"{train.path}: has {len(train):,} pairs; give at most as many --kept_pairs.")
    first, wordings = asked.relations[0], data_dir / WORDINGS_FILE
    if first.name not in [each.name for each in train.relations]:
        raise BadInput(
            f"{data_dir / TRAIN_FILE}: asks for no {first.name!r}, which {asked.path} begins with; give others."
        )
    of_others = [each for each in load_relations(wordings if wordings.is_file() else None) if each.name == first.name]
    dev = asked.select(first)
    other_words = {
        text: of_others[0].ask(title) for text, title in zip(dev.texts, dev.titles, strict=True) if of_others
    }
    texts = list(dict.fromkeys([*asked.texts, *other_words.values()]))
    before = {name: ask(*model, texts) for name, model in models.items()}
    differ = [sum(a[text] != b[text] for text in asked.texts) for a, b in combinations(before.values(), 2)]
    lines = pd.DataFrame(
        [
            line
            for name, answers in before.items()
            for line in correct_facts(name, answers, asked, train, other_words, arguments)
        ]
    )
    write_file(output_dir / "corrections.csv", lines.to_csv(index=False))
    rows = [describe_model(own) for _, own in lines.groupby("model", sort=False)]
    if differ:
        rows.append({"model": "from model to model", "others changed": f"{np.mean(differ):.1f} of {len(asked)}"})
    write_table(output_dir, rows, f"Corrections of {first.name!r} in {asked.path}:")
    figure, axes = make_figure(6, 3.2)
    axes.hist(lines["changed"], bins=range(int(lines["changed"].max()) + 2), color=BLUE, align="left")
    if differ:
        axes.axvline(np.mean(differ), color="black", lw=1.5, label="from model to model")
        axes.legend()
    axes.set(xlabel="answers about others that a correction changes", ylabel="corrections")
    save_picture(figure, output_dir / "chart.png")
