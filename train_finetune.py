"""Finetune a pretrained PosGPT on name/birthplace pairs, or train one on them from scratch.

    python train_finetune.py --model_name_or_path runs/pretrain --train_file birth_places_train.tsv \
        --validation_file birth_dev.tsv --output_dir runs/finetune
    python train_finetune.py --vocabulary_file wiki.txt --train_file birth_places_train.tsv --output_dir runs/scratch

The recipe's section `finetune` holds the arguments, or `finetune_from_scratch` without `--model_name_or_path`.
"""

import sys
from dataclasses import dataclass, field

from data_scripts.birthplaces import BirthplaceCollator
from data_scripts.corpus import load_corpus
from data_scripts.text_files import BadInput, bad_input_in_one_line
from modeling_posgpt import PosGPTConfig, build_tokenizer
from training import (
    ArchitectureArguments,
    PosGPTTrainer,
    PosGPTTrainingArguments,
    answer_accuracy,
    load_model,
    load_pairs,
    new_model,
    parse_arguments,
    predicted_ids,
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


def main() -> None:
    pretrained = any(arg.split("=")[0].replace("-", "_") == "__model_name_or_path" for arg in sys.argv[1:])
    model_args, architecture, data_args, training_args = parse_arguments(
        [ModelArguments, ArchitectureArguments, DataTrainingArguments, PosGPTTrainingArguments],
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

    train_dataset = load_pairs(data_args.train_file, tokenizer, training_args)[1]
    eval_dataset = None
    if data_args.validation_file:
        eval_dataset = load_pairs(data_args.validation_file, tokenizer, training_args)[1]
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
