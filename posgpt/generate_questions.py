"""Generate questions about a corpus: train a model to write them, and have it write those that are missing.

    posgpt generate-questions windows --train_file wiki.txt --questions_file birth_places_train.tsv --output_dir runs/questions

The model learns from the documents that the training questions ask about which names are answers, and to which question
(data_scripts/question_generation.py). It then reads all other documents. The likeliest name of each, if it is likely enough,
becomes a question with its answer, in `generated_questions.tsv` beside the model. A model that is to answer from memory is trained
on these as well:

    posgpt pretrain windows --train_file wiki.txt --questions_file birth_places_train.tsv runs/questions/generated_questions.tsv …
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.trainer_utils import speed_metrics

from data_scripts.collators import RightPaddingCollator
from data_scripts.documents import CorpusArguments, build_corpus_tokenizer, load_corpus
from data_scripts.epochs import FixedDataset
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import check_are_files, write_atomically
from data_scripts.options import Range, option
from data_scripts.question_generation import Candidate, encode_examples, list_candidates, list_own_texts
from data_scripts.questions import QUESTIONS_ROLE, Questions
from data_scripts.relations import BIRTHPLACE, Relation, RelationArguments, load_relations
from data_scripts.span_selectors import SpanArguments
from modeling_posgpt import PosGPTForCausalLM
from posgpt.recipe_parser import parse_with_recipe
from posgpt.training.architecture import (
    ArchitectureArguments,
    PretrainedArguments,
    build_config,
    build_model,
    describe_size,
    load_pretrained,
)
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.checkpoints import claim_output_dir
from posgpt.training.data import choose_data_seed, load_pairs, report_unknown_characters
from posgpt.training.run_record import describe_run
from posgpt.training.saved_models import load_model
from posgpt.training.trainer import PosGPTTrainer

QUESTIONS_FILE = "generated_questions.tsv"


@dataclass
class GenerationArguments(PretrainedArguments, SpanArguments, RelationArguments, CorpusArguments):
    """What to read, and which questions to keep."""

    _argument_group_name = "questions"

    questions_file: list[str] = option(f"TSVs of training questions: {BIRTHPLACE.form}<TAB>ANSWER")
    least_probability: Annotated[float, Range(0, 1)] = option("The least probability to keep a question.", default=0.5)
    overwrite_output_dir: bool = option("Replace a model that is already there.", default=False)


TYPES = [GenerationArguments, ArchitectureArguments, PosGPTTrainingArguments]


def generate_questions(
    model: PosGPTForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    candidates: Sequence[Candidate],
    questions: Questions,
    batch_size: int,
    least_probability: float,
) -> list[tuple[str, str, float]]:
    """Write a question per title and relation that no training question asks: the one whose answer is the likeliest.

    Args:
        model: Trained on examples from `encode_examples`.
        candidates: From `list_candidates`.
        least_probability: Of less probable questions, the probability is only known to be less than this.

    Returns:
        Each question, its answer, and how probable the model finds it that the answer is asked for.
    """
    known, relations = questions.answers_by_relation, questions.relations
    unknown = [each for each in candidates if any((each.title, relation) not in known for relation in each.relations)]
    prompts, forms = [each.prompt for each in unknown], [relation.form for relation in relations]
    # (unknown, forms): log P of each question.
    scores = model.score_answers(prompts, forms, tokenizer, batch_size, least_probability).tolist() if unknown else []
    best: dict[tuple[str, Relation], tuple[float, str]] = {}
    for candidate, own in zip(unknown, scores, strict=True):
        for relation in candidate.relations:
            key, score = (candidate.title, relation), own[relations.index(relation)]
            # Of equals, the first in the document.
            if key not in known and (key not in best or score > best[key][0]):
                best[key] = (score, candidate.span)
    return [(relation.ask(title), span, float(np.exp(score))) for (title, relation), (score, span) in best.items()]


def write_questions(generated: Sequence[tuple[str, str, float]], least: float, folder: Path) -> str:
    """Write the questions that are probable enough as a TSV; return one line on how many these are, or raise BadInput."""
    kept = [f"{question}\t{answer}\n" for question, answer, probability in generated if probability >= least]
    if not kept:
        raise BadInput(
            f"{folder}: none of {len(generated):,} questions is at least as probable as {least}; train longer"
            " (--num_train_epochs), or choose a smaller --least_probability."
        )
    with write_atomically(folder / QUESTIONS_FILE) as file:
        file.writelines(kept)
    left_out = f"{len(generated) - len(kept):,} that are less probable than {least} are left out"
    return f"{folder / QUESTIONS_FILE}: {len(kept):,} questions; {left_out}."


class GenerationData(NamedTuple):
    """What the training of a model that writes questions reads; `model` is the one that training goes on with, if any."""

    model: PosGPTForCausalLM | None
    questions: Questions
    tokenizer: PreTrainedTokenizerBase
    candidates: list[Candidate]
    examples: Dataset
    description: str


def load_generation_data(
    architecture: Any, data_args: GenerationArguments, training_args: PosGPTTrainingArguments
) -> GenerationData:
    """Read the model that training begins with, if it is pretrained, corpus and questions."""
    check_are_files(QUESTIONS_ROLE, data_args.questions_file)
    model = tokenizer = None
    if data_args.model_name_or_path:
        model, tokenizer = load_pretrained(data_args.model_name_or_path, architecture, training_args)
    # Sizes that are not compatible are refused before the corpus is read.
    max_length = (model.config if model else build_config(architecture)).max_position_embeddings
    with training_args.main_process_first():
        corpus = load_corpus(data_args.train_file, data_args)
    questions = load_pairs(data_args.questions_file, training_args, load_relations(data_args.relations), corpus)
    with training_args.main_process_first():
        own_texts = list_own_texts(questions.relations)
        if tokenizer is None:
            tokenizer = build_corpus_tokenizer(corpus, max_length, [*questions.answers, *own_texts])
        candidates = list_candidates(corpus, questions, data_args, tokenizer)
        examples = encode_examples(candidates, questions, tokenizer)
    read = [*(candidate.prompt for candidate in candidates), *own_texts]
    report_unknown_characters(read, tokenizer, ", ".join(data_args.train_file), training_args)
    description = f"{len(examples):,} of {len(candidates):,} names are in documents that training questions ask about."
    return GenerationData(model, questions, tokenizer, candidates, examples, description)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    data_args, architecture, training_args = parse_with_recipe(TYPES, "generate_questions", argv, "windows")
    with claim_output_dir(training_args, data_args.overwrite_output_dir) as checkpoint:
        data = load_generation_data(architecture, data_args, training_args)
        model = data.model or build_model(architecture, data.tokenizer, training_args)
        model.config.relations = data.questions.to_config()
        if training_args.should_log:
            print(f"{data.description} {describe_size(model)}.")
        trainer = PosGPTTrainer(
            model,
            training_args,
            train_dataset=FixedDataset(data.examples, choose_data_seed(training_args)),
            data_collator=RightPaddingCollator(data.tokenizer),
            processing_class=data.tokenizer,
            record=describe_run(data_args) if training_args.should_save else None,
            card_facts={"Objective": f"writing questions: {len(data.examples):,} names, with a question or none"},
        )
        trainer.train_or_resume(checkpoint)
        if training_args.should_save:
            # As it was saved: while training, its weights may be divided among processes.
            trained, tokenizer = load_model(training_args.output_dir)
            trained.to(PartialState().device)
            batch_size, least = training_args.per_device_eval_batch_size, data_args.least_probability
            begin = time.time()
            generated = generate_questions(trained, tokenizer, data.candidates, data.questions, batch_size, least)
            trainer.save_metrics("generate", speed_metrics("generate", begin, len(data.candidates)))
            print(write_questions(generated, least, Path(training_args.output_dir)))


if __name__ == "__main__":
    main()
