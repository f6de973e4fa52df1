"""Pretrain a PosGPT on a corpus by character span corruption, or by name-keyed windows with questions mixed in.

    python train_pretrain.py --train_file wiki.txt --position_embedding_type rotary --output_dir runs/pretrain
    accelerate launch train_pretrain.py recipes/windows.yaml --train_file wiki.txt \
        --questions_file birth_places_train.tsv --output_dir runs/windows

The recipe's section `pretrain` holds the arguments; any of them, and any of transformers' TrainingArguments, can be
given on the command line.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.birthplaces import name_in
from data_scripts.corpus import load_corpus, tokenize_corpus
from data_scripts.epochs import EpochDataset
from data_scripts.name_windows import NameWindowsCollator, NameWindowsDataset, OneWindowCollator, keyed_documents
from data_scripts.span_corruption import SpanCorruptionCollator, SpanCorruptionDataset, max_truncated_length
from data_scripts.text_files import BadInput, bad_input_in_one_line, check_at_least
from modeling_posgpt import PosGPTConfig, build_tokenizer
from training import (
    ArchitectureArguments,
    PosGPTTrainer,
    PosGPTTrainingArguments,
    answer_accuracy,
    load_pairs,
    new_model,
    parse_arguments,
    predicted_ids,
    starting_checkpoint,
)


@dataclass
class DataTrainingArguments:
    """What to read and how, and whether an earlier result may be replaced."""

    train_file: str = field(metadata={"help": "The corpus: UTF-8 text, a document a line."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a model that is already there."})
    objective: str = field(
        default="span_corruption", metadata={"help": "span_corruption or name_windows (data_scripts/ describes both)."}
    )
    questions_file: str | None = field(default=None, metadata={"help": "A TSV of training questions to mix in."})
    validation_file: str | None = field(
        default=None, metadata={"help": "A TSV of questions to measure on while training."}
    )
    question_share: float = field(
        default=0.3, metadata={"help": "How often a document comes with its person's training question."}
    )
    ask_dates: bool = field(default=True, metadata={"help": "Numbers and months are salient spans, too."})
    salient_share: float = field(
        default=0.0, metadata={"help": "span_corruption: how often the masked span is a name, place or date."}
    )
    loss_on_span: bool = field(default=False, metadata={"help": "span_corruption: no loss on the rest."})
    max_cue_words: int = field(default=5, metadata={"help": "name_windows: the most words a cue is drawn from."})
    min_cue_kept: float = field(
        default=0.3, metadata={"help": "name_windows: the least probability with which a cue keeps its words."}
    )
    plain_cues: bool = field(
        default=True,
        metadata={"help": "name_windows: cues in their plainest form, dates as 0, without the title's words."},
    )
    keep_names: bool = field(
        default=True, metadata={"help": "name_windows: a cue keeps a name right before the span."}
    )
    max_spans: int = field(
        default=4, metadata={"help": "name_windows: how many of a document's names are asked for, its first ones."}
    )
    window_wording: str = field(
        default="question", metadata={"help": "name_windows: asked like a question, or as in the document."}
    )


def span_corruption(
    corpus: Dataset,
    pairs: Dataset | None,
    encoded: Dataset | None,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    data_args: DataTrainingArguments,
) -> tuple[EpochDataset, Callable, str]:
    """Return the dataset, its collator and a line on what of the corpus is read."""
    block_size = tokenizer.model_max_length
    questions: dict[str, list[dict]] = {}
    if pairs or data_args.salient_share:
        corpus = keyed_documents(corpus, data_args.ask_dates)
    for pair, question in zip(pairs or (), encoded or (), strict=True):
        questions.setdefault(name_in(pair["question"]), []).append(question)
    dataset = SpanCorruptionDataset(
        tokenize_corpus(corpus, tokenizer),
        block_size,
        seed,
        data_args.salient_share,
        questions,
        data_args.question_share,
    )
    longer = int((dataset.document_lengths > block_size).sum())
    described = (
        f"{len(dataset):,} documents, {dataset.document_lengths.sum():,} characters. {longer:,} documents are longer than"
        f" the block of {block_size}: span corruption reads at most the first {max_truncated_length(block_size)}"
        " characters of a document."
    )
    if questions:
        without = len(set(questions) - set(corpus["title"]))
        described += (
            f" Questions about {len(questions):,} people are mixed in; {without:,} have no document and are not asked."
        )
    return dataset, SpanCorruptionCollator(tokenizer, data_args.loss_on_span), described


def name_windows(
    corpus: Dataset,
    pairs: Dataset | None,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    data_args: DataTrainingArguments,
    one_text_a_row: bool,
) -> tuple[EpochDataset, Callable, str]:
    """Return the dataset, its collator and a line on what of the corpus is read."""
    dataset = NameWindowsDataset(
        keyed_documents(corpus, data_args.ask_dates),
        tokenizer,
        tokenizer.model_max_length,
        seed,
        pairs=pairs,
        question_share=data_args.question_share,
        max_cue_words=data_args.max_cue_words,
        min_cue_kept=data_args.min_cue_kept,
        plain_cues=data_args.plain_cues,
        keep_names=data_args.keep_names,
        max_spans=data_args.max_spans,
        wording=data_args.window_wording,
    )
    spans = len(dataset.document_of)
    described = (
        f"{len(dataset.documents):,} of {len(corpus):,} documents have a title and something to ask for, {spans:,} spans"
        f" in all. Questions about {len(dataset.questions):,} people are mixed in, {len(dataset.without_document):,} of"
        " them without such a document."
    )
    collator = OneWindowCollator if one_text_a_row else NameWindowsCollator
    return dataset, collator(tokenizer), described


def main() -> None:
    architecture, data_args, training_args = parse_arguments(
        [ArchitectureArguments, DataTrainingArguments, PosGPTTrainingArguments], section="pretrain"
    )
    if training_args.train_sampling_strategy not in ("random", "group_by_length"):
        strategy = training_args.train_sampling_strategy
        raise BadInput(f"train_sampling_strategy is {strategy!r}; choose random or group_by_length.")
    if data_args.objective not in ("span_corruption", "name_windows"):
        raise BadInput(f"objective is {data_args.objective!r}; choose span_corruption or name_windows.")
    for name in ("question_share", "salient_share", "min_cue_kept"):
        if not 0 <= getattr(data_args, name) <= 1:
            raise BadInput(f"{name} is {getattr(data_args, name)}; choose a number from 0 to 1.")
    check_at_least(0, max_cue_words=data_args.max_cue_words)
    check_at_least(1, max_spans=data_args.max_spans)
    checkpoint = starting_checkpoint(training_args, data_args.overwrite_output_dir)

    block_size = architecture.block_size or PosGPTConfig.max_position_embeddings
    seed = training_args.seed if training_args.data_seed is None else training_args.data_seed
    with training_args.main_process_first():
        corpus = load_corpus(data_args.train_file)
        tokenizer = build_tokenizer((text for batch in corpus.iter(1000) for text in batch["text"]), block_size)
    pairs = encoded = eval_dataset = None
    if data_args.questions_file:
        pairs, encoded = load_pairs(data_args.questions_file, tokenizer, training_args)
    if data_args.validation_file:
        _, eval_dataset = load_pairs(data_args.validation_file, tokenizer, training_args)
        if training_args.eval_strategy == "no":
            training_args.eval_strategy = "epoch"
    with training_args.main_process_first():
        if data_args.objective == "name_windows":
            # Latents read one text a row.
            one_text_a_row = architecture.bottleneck_size is not None
            dataset, collator, described = name_windows(corpus, pairs, tokenizer, seed, data_args, one_text_a_row)
        else:
            dataset, collator, described = span_corruption(corpus, pairs, encoded, tokenizer, seed, data_args)
    model = new_model(architecture, tokenizer, training_args)

    if training_args.should_log:
        print(f"{described} {len(tokenizer)} symbols; {model.num_parameters():,} parameters.")
    objective = f"{data_args.objective.replace('_', ' ')} of {len(corpus):,} documents"
    trainer = PosGPTTrainer(
        model,
        training_args,
        train_dataset=dataset,
        eval_dataset=eval_dataset,
        data_collator=collator,
        processing_class=tokenizer,
        compute_metrics=answer_accuracy,
        preprocess_logits_for_metrics=predicted_ids,
        card_facts={
            "Objective": f"{objective}, {len(pairs):,} questions mixed in" if pairs else f"{objective}; not finetuned"
        },
    )
    trainer.run(checkpoint)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
