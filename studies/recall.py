"""What saved models recall in the words they have read, beside what they answer when they are asked.

    posgpt study recall --models runs/pretrain_learned runs/pretrain_rotary --data_dir data

For each model and the people of a TSV, three counts:

- answered when asked: the question is answered exactly with the place.
- recalled as read: in the form that the model was trained on (the objective's `build_prompt`). With name-keyed windows, the
  words before the place are the cue, and the place alone has to follow. With span corruption, the place is masked in its
  document's beginning, and what is written has to begin with it; what comes next does not count, because not every model was
  taught to end a span with `⁇`.
- continued as read, for objectives that read text, such as span corruption: the document's beginning up to the place has to
  be continued with it. With causal language modeling, that is how it was read, and nothing is masked.

The last two are about the people whose place is a name in their document, one that the objective asks for: for span
corruption, one within the characters that it reads.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.documents import load_corpus
from data_scripts.files import CORPUS_FILE, TRAIN_FILE, check_is_folder_or_new
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from data_scripts.options import option, parse_options
from data_scripts.questions import Questions, load_questions
from data_scripts.relations import Relation, read_relations
from data_scripts.salient_spans import add_titles_and_spans
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from modeling_posgpt.answering_posgpt import iterate_batches
from posgpt.evaluation.scoring import match_exactly
from posgpt.recipe_parser import read_section
from posgpt.tables import write_table
from posgpt.training.run_record import read_record
from posgpt.training.saved_models import load_model


@dataclass
class RecallArguments:
    """Which models, and whom to ask them about."""

    models: list[str] = option("PosGPTs: folders, or names on the hub.")
    data_dir: str = option(f"Folder with {CORPUS_FILE} and {TRAIN_FILE}.")
    recipe: str = option("The recipe of models that do not say what they were pretrained with.", default="course")
    questions_file: str | None = option(
        f"TSV of the people to ask about, e.g. held out from training (default: {TRAIN_FILE} in data_dir).",
        default=None,
    )
    output_dir: str = option("Folder for the table.", default="runs/recall")


def read_objective(recipe: str, **settings: Any) -> ObjectiveConfig:
    """Return what a recipe pretrains on; `settings` take precedence over its options."""
    options = read_section(recipe, "pretrain", **settings)
    config = OBJECTIVES[options.get("objective", DEFAULT_OBJECTIVE)]
    return config(**{field.name: options[field.name] for field in fields(config) if field.name in options})


def build_recall_prompts(
    corpus_file: Path, questions: Questions, objective: ObjectiveConfig, max_length: int
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the prompt, without the `⁇` at the end, the answer, the relation's name and the title for each answer that is a span of its
    document: the first such span.

    What cannot be asked for in the form of the objective's rows, of `max_length` characters, is left out. So is an answer about a title
    of which several things are asked, if its document has the text more often than it answers: which of them tells it is not known.
    """
    # A title may have one answer to several questions.
    missing: dict[tuple[str, str], list[Relation]] = {}
    asked = [*zip(questions.titles, questions.answers, questions.relation_per_question, strict=True)]
    for title, answer, relation in asked:
        missing.setdefault((title, answer), []).append(relation)
    kinds = Counter(title for title, _ in {(title, relation) for title, _, relation in asked})
    at_most = {key: len(relations) if kinds[key[0]] > 1 else math.inf for key, relations in missing.items()}
    prompts, answers, names, titles = [], [], [], []
    for document in add_titles_and_spans(load_corpus(corpus_file), dates=True):
        title, text = document["title"], document["text"]
        said = Counter(text[start:end] for start, end in document["spans"])
        for start, end in document["spans"]:
            answer = text[start:end]
            if (relations := missing.get((title, answer))) and said[answer] <= at_most[title, answer]:
                prompt = objective.build_prompt(relations[0], title, text, start, end, max_length)
                if prompt is not None:
                    names.append(relations.pop(0).name)
                    prompts.append(prompt)
                    answers.append(answer)
                    titles.append(title)
    return prompts, answers, names, titles


def grade_continuations(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], references: Sequence[str]
) -> np.ndarray:
    """Return (texts,) booleans: whether each text is continued greedily with its reference, whatever comes after that."""
    written: dict[int, str] = {}
    for length, indices in iterate_batches(texts, list(map(len, references)), 128, "Continuing"):
        beginnings = [texts[index] for index in indices]
        inputs = tokenizer(beginnings, padding=True, padding_side="left", return_tensors="pt").to(model.device)
        generated = model.generate(**inputs, max_new_tokens=length, do_sample=False)
        new = generated[:, inputs["input_ids"].shape[1] :].tolist()
        written |= {index: str(tokenizer.decode(ids)) for index, ids in zip(indices, new, strict=True)}
    return match_exactly([written[index] for index in range(len(texts))], references)


class Recall(NamedTuple):
    """What a model recalls.

    Args:
        measures: By measure, (people,) booleans.
        surprisals: -log2 of the probability of each answer, in the words that were read.
        relations, titles: What each of these is asked for, and about what.
    """

    measures: dict[str, np.ndarray]
    surprisals: list[float]
    relations: list[str]
    titles: list[str]


def measure_model(
    name: str,
    corpus_file: Path,
    questions_file: str | Path,
    objective: ObjectiveConfig,
    known: Sequence[Relation] = (),
    corpus: Dataset | None = None,
) -> Recall:
    """Return what a model recalls of the people whom a TSV asks about.

    Args:
        known: Relations that are known besides the model's own and those that all files know.
        corpus: For other relations, the documents whose titles show what the questions are about.

    Raises:
        BadInput: it is no model, or no file of questions that are recognized.
    """
    model, tokenizer = load_model(name)
    model.to(PartialState().device)
    known = [*known, *read_relations(model.config.relations)]
    questions = load_questions(questions_file, answers=True, known=known, corpus=corpus)
    max_length = model.config.max_position_embeddings
    prompts, places, relations, titles = build_recall_prompts(corpus_file, questions, objective, max_length)
    references = [questions.answers_by_text[text] for text in questions.texts]
    answered = [answer.text for answer in model.answer(questions.texts, tokenizer)]
    measures = {"answered when asked": match_exactly(answered, references)}
    if objective.reads_text:
        # No corpus contains the mask.
        beginnings = [prompt.partition(MASK_TOKEN)[0] for prompt in prompts]
        log_probs = model.compute_continuation_log_probs(beginnings, places, tokenizer)
        if not prompts or beginnings != prompts:
            masked = [prompt + MASK_TOKEN for prompt in prompts]
            measures["recalled as read"] = grade_continuations(model, tokenizer, masked, places)
        measures["continued as read"] = grade_continuations(model, tokenizer, beginnings, places)
    else:
        log_probs = model.compute_log_probs(prompts, places, tokenizer)
        written = [answer.text for answer in model.answer(prompts, tokenizer)]
        measures["recalled as read"] = match_exactly(written, places)
    return Recall(measures, (-log_probs / math.log(2)).tolist(), relations, titles)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(RecallArguments, argv)
    output_dir, data_dir = check_is_folder_or_new(arguments.output_dir), Path(arguments.data_dir)
    questions_file, corpus_file = arguments.questions_file or data_dir / TRAIN_FILE, data_dir / CORPUS_FILE
    corpus, rows, objectives = load_corpus(corpus_file), [], list[str]()
    for name in arguments.models:
        options = read_record(name).get("options", {})
        objective = read_objective(arguments.recipe, **options)
        if "objective" not in options:
            # Models of old versions, and finetuned ones.
            print(
                f"{name}: does not say how it was pretrained, so the objective is that of {arguments.recipe!r}; --recipe changes it."
            )
        objectives.append(objective.name)
        row = {"model": name}
        recall = measure_model(name, corpus_file, questions_file, objective, corpus=corpus)
        for measure, right in recall.measures.items():
            row[measure] = f"{right.sum():,} of {len(right):,} ({right.sum() / max(len(right), 1):.1%})"
        rows.append(row)
    named = ", ".join(dict.fromkeys(objectives))
    write_table(output_dir, rows, f"The questions of {questions_file}, objective {named}:")
