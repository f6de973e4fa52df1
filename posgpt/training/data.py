"""The order in which training reads its examples, and questions for training and for measuring while training."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainingArguments

from data_scripts.documents import count_decomposed, describe_decomposed
from data_scripts.epochs import EpochDataset, EpochSampler
from data_scripts.objective_config import TrainingData
from data_scripts.questions import (
    Questions,
    describe_overlap,
    describe_unknown_characters,
    encode_questions,
    load_questions,
)
from data_scripts.relations import Relation
from data_scripts.titles import describe_cases, iterate_titles, match_cases
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from posgpt.evaluation.evidence import normalize_answer
from posgpt.training.arguments import PosGPTTrainingArguments

# A word that is neither an initial nor an abbreviation such as `St`, `Mrs` or `Prof`, a full stop, and a capital after it.
_GOES_ON = re.compile(r"(?:^\w{5,}|\W\w{3,})\. +[^\W\d_a-z]|。.")


@dataclass(frozen=True)
class LoadedData:
    """All that a training reads.

    Args:
        relations: The entries of `PosGPTConfig.relations`: what the questions ask for, or may ask for later.
        questions: Those of training, if it reads any.
        corpus: What pretraining reads.
        model: What finetuning begins with; None: a new one.
    """

    tokenizer: PreTrainedTokenizerBase
    training: TrainingData
    relations: dict[str, dict]
    questions: Questions | None
    validation: Questions | None
    corpus: Any = None
    model: PosGPTForCausalLM | None = None


def choose_data_seed(training_args: TrainingArguments) -> int:
    """Return what determines what is read, and in which order: `data_seed`, or `seed` where there is none."""
    return training_args.seed if training_args.data_seed is None else training_args.data_seed


def build_epoch_sampler(dataset: EpochDataset, training_args: PosGPTTrainingArguments) -> EpochSampler:
    """Build the sampler that the training arguments ask for."""
    return EpochSampler(
        dataset,
        training_args.rows_per_step,
        training_args.train_sampling_strategy,
        # Processes that share a step without accumulating would wait for the one with the longest examples.
        sort_steps=training_args.gradient_accumulation_steps > 1,
        first_shares=training_args.first_shares,
    )


def load_pairs(
    paths: Sequence[str],
    training_args: TrainingArguments,
    known: Sequence[Relation] = (),
    corpus: Dataset | None = None,
) -> Questions:
    """Load TSVs with answers (see `load_questions`), and print what they ask for and what in them may surprise."""
    with training_args.main_process_first():
        questions = load_questions(*paths, answers=True, known=known, corpus=corpus)
    titles = match_cases(questions.titles, iterate_titles(corpus)) if corpus is not None else None
    questions = questions.rename(titles or {})
    if training_args.should_log:
        for note in describe_pairs(questions, titles):
            print(f"{questions.path}: {note}.")
        texts = [*questions.texts, *questions.answers]
        if note := describe_decomposed(
            questions.path, count_decomposed(texts), f"{len(texts):,} questions and answers"
        ):
            print(note)
    return questions


def describe_pairs(questions: Questions, titles: Mapping[str, str] | None) -> Iterator[str]:
    """Yield what questions ask for, and slips in answers and titles; `titles` are from `match_cases`, None without a corpus."""
    spellings: dict[tuple[Relation, str], Counter] = {}
    for relation, rows in questions.rows_of.items():
        counts = Counter(questions.answers[row] for row in rows)
        ((common, count),) = counts.most_common(1)
        yield f"{len(rows):,} {relation.name} questions, the most frequent answer is {common} ({count:,} of them)"
        for answer, count in counts.items():
            spellings.setdefault((relation, normalize_answer(answer)), Counter())[answer] = count
    if differing := questions.contradictions:
        text, given = next(iter(differing.items()))
        listed = f"first {text!r}: {', '.join(sorted(given))}"
        yield f"{len(differing)} questions have different answers, all of which are used, {listed}"
    if titles is not None:
        yield from describe_cases(titles)
        known = set(titles.values())
        asked = list(zip(questions.titles, questions.relation_per_question, strict=True))
        # Questions of some relations are about no title, such as who was born in a place and a year.
        documented = {relation for title, relation in asked if title in known} or {*questions.relations}
        if absent := [title for title, relation in asked if title not in known and relation in documented]:
            counted = f"{len(absent):,} of {len(questions):,} questions are about titles that no document has"
            yield f"{counted}, first {absent[0]!r}; write titles as the corpus does"
        for relation, rows in questions.rows_of.items():
            if relation not in documented:
                yield f"none of the {len(rows):,} {relation.name} questions is about a document's title; the first asks about {questions.titles[rows[0]]!r}"
    if cut := [answer for answer in questions.answers if _GOES_ON.search(answer)]:
        yield f"{len(cut):,} of {len(questions):,} answers go on after a full stop, first {cut[0]!r}; end them there"
    if several := [own for own in spellings.values() if len(own) > 1]:
        first = " and ".join(f"{answer!r} × {count:,}" for answer, count in several[0].most_common(2))
        yield f"{len(several):,} answers are spelled in several ways, first {first}; give each one spelling"


def load_validation(
    paths: Sequence[str] | None,
    training_args: TrainingArguments,
    known: Sequence[Relation],
    relations: Collection[str],
    training: Questions | None,
    corpus: Dataset | None = None,
) -> Questions | None:
    """Load the TSVs to measure accuracy on, if there are any, and print what makes it mean something else than it seems to.

    Relations that are `known` need not be recognized; `relations` are the names of those that the model learns.
    """
    if not paths:
        return None
    validation = load_pairs(paths, training_args, known, corpus)
    if training_args.should_log:
        if untrained := [each.form for each in validation.relations if each.name not in relations]:
            print(f"{validation.path}: asks {', '.join(untrained)}, which the model is not trained to answer.")
        elif training and (unlike := [each.form for each in validation.relations if each not in training.relations]):
            print(f"{validation.path}: asks {', '.join(unlike)}, which no question of {training.path} does.")
        if training and (overlap := describe_overlap(validation, training)):
            print(f"{overlap}; the accuracy includes them.")
    return validation


def raise_max_answer_length(model: PosGPTForCausalLM, answers: Iterable[str], longest: int = 0) -> None:
    """Have a model write answers as long as those that it is trained on, or as `longest`; by default, it stops after 32 characters."""
    longest = max([longest, *map(len, answers)]) + len(MASK_TOKEN)
    model.config.max_answer_length = max(model.config.max_answer_length, longest)


def encode_pairs(
    questions: Questions,
    tokenizer: PreTrainedTokenizerBase,
    training_args: TrainingArguments,
    loss_on_first_mask: bool = False,
) -> list[dict]:
    """Encode questions with their answers (see `encode_questions`); print which characters the tokenizer does not know."""
    encoded = encode_questions(questions, tokenizer, loss_on_first_mask)
    texts = [*questions.texts, *questions.answers]
    if training_args.should_log and (unknown := describe_unknown_characters(texts, tokenizer, questions.path)):
        print(unknown)
    return encoded
