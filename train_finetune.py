"""Finetune a pretrained PosGPT on name/birthplace pairs, or train one on them from scratch.

    python train_finetune.py --model_name_or_path runs/pretrain --train_file birth_places_train.tsv \
        --validation_file birth_dev.tsv --output_dir runs/finetune
    python train_finetune.py --vocabulary_file wiki.txt --train_file birth_places_train.tsv --output_dir runs/scratch

The recipe's section `finetune` holds the arguments, or `finetune_from_scratch` without `--model_name_or_path`.
"""

import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from datasets import Dataset
from transformers import EvalPrediction, PreTrainedTokenizerBase, TrainingArguments

from data_scripts.birthplaces import (
    BirthplaceCollator,
    describe_unknown_characters,
    encode_birthplaces,
    load_birthplaces,
)
from data_scripts.corpus import load_corpus
from data_scripts.text_files import BadInput, bad_input_in_one_line
from modeling_posgpt import PosGPTConfig, build_tokenizer
from training import (
    ArchitectureArguments,
    PosGPTTrainer,
    load_model,
    new_model,
    parse_arguments,
    starting_checkpoint,
)


@dataclass
class ModelArguments:
    """Where the model comes from."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A pretrained PosGPT: a folder or a name on the hub. Without: from scratch."}
    )
    vocabulary_file: str | None = field(
        default=None, metadata={"help": "From scratch: the corpus whose characters become the vocabulary (wiki.txt)."}
    )


@dataclass
class DataTrainingArguments:
    """What to read, and whether an earlier result may be replaced."""

    train_file: str = field(metadata={"help": "TSV: Where was NAME born?<TAB>PLACE"})
    validation_file: str | None = field(default=None, metadata={"help": "A TSV of the same form, to measure on."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a model that is already there."})


def load_pairs(path: str, tokenizer: PreTrainedTokenizerBase, training_args: TrainingArguments) -> Dataset:
    """Load and encode a TSV with answers; say which of its characters the tokenizer does not know."""
    with training_args.main_process_first():
        pairs = load_birthplaces(path, answers=True)
        encoded = encode_birthplaces(pairs, tokenizer, path)
    unknown = describe_unknown_characters([text for row in pairs for text in row.values()], tokenizer, path)
    if training_args.should_log:
        common = Counter(pairs["place"]).most_common(1)[0]
        print(f"{path}: {len(pairs):,} pairs, the most frequent place is {common[0]} ({common[1]:,} times).")
        if unknown:
            print(unknown)
    return encoded


def predicted_ids(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Keep the likeliest symbol at each position, so that evaluation need not hold all logits: (batch, length)."""
    return logits.argmax(dim=-1)


def answer_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The share of rows whose every answer symbol is the likeliest given those before, as greedy decoding needs."""
    predicted, labels = prediction.predictions[:, :-1], prediction.label_ids[:, 1:]
    return {"accuracy": float(np.mean(np.all((predicted == labels) | (labels == -100), axis=1)))}


def main() -> None:
    pretrained = any(arg.split("=")[0].replace("-", "_") == "__model_name_or_path" for arg in sys.argv[1:])
    model_args, architecture, data_args, training_args = parse_arguments(
        [ModelArguments, ArchitectureArguments, DataTrainingArguments, TrainingArguments],
        section="finetune" if pretrained else "finetune_from_scratch",
    )
    checkpoint = starting_checkpoint(training_args, data_args.overwrite_output_dir)

    if model_args.model_name_or_path:
        if model_args.vocabulary_file:
            raise BadInput("--vocabulary_file is for training from scratch; a model brings its own vocabulary.")
        overrides = architecture.config_values()
        fixed = sorted(name for name in overrides if not name.endswith(("pdrop", "dropout")))
        if fixed:
            raise BadInput(
                f"{', '.join(fixed)} cannot change: {model_args.model_name_or_path} has them fixed; leave them out, or"
                " --model_name_or_path to train from scratch."
            )
        model, tokenizer = load_model(
            model_args.model_name_or_path, attn_implementation=architecture.attention(training_args), **overrides
        )
    elif model_args.vocabulary_file:
        with training_args.main_process_first():
            corpus = load_corpus(model_args.vocabulary_file)
        block_size = architecture.block_size or PosGPTConfig.max_position_embeddings
        tokenizer = build_tokenizer((text for batch in corpus.iter(1000) for text in batch["text"]), block_size)
        model = new_model(architecture, tokenizer, training_args)
    else:
        raise BadInput(
            "no model to start from: give --model_name_or_path with a pretrained folder; or, to train from scratch,"
            " --vocabulary_file with the corpus (wiki.txt) that the vocabulary is built from."
        )

    train_dataset = load_pairs(data_args.train_file, tokenizer, training_args)
    eval_dataset = None
    if data_args.validation_file:
        eval_dataset = load_pairs(data_args.validation_file, tokenizer, training_args)
    else:
        training_args.eval_strategy = "no"

    start = "after pretraining" if model_args.model_name_or_path else "without pretraining"
    trainer = PosGPTTrainer(
        model,
        training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=BirthplaceCollator(tokenizer),
        processing_class=tokenizer,
        compute_metrics=answer_accuracy,
        preprocess_logits_for_metrics=predicted_ids,
        card_facts={"Objective": f"birthplaces of {len(train_dataset):,} people, {start}"},
    )
    trainer.run(checkpoint)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
