"""Pretrain a PosGPT on a corpus by character span corruption.

    python train_pretrain.py --train_file wiki.txt --position_embedding_type rotary --output_dir runs/pretrain
    accelerate launch train_pretrain.py recipes/quick.yaml --train_file wiki.txt --output_dir runs/pretrain

The recipe's section `pretrain` holds the arguments; any of them, and any of transformers' TrainingArguments, can be
given on the command line.
"""

from dataclasses import dataclass, field

from transformers import TrainingArguments

from data_scripts.corpus import load_corpus, tokenize_corpus
from data_scripts.span_corruption import SpanCorruptionCollator, SpanCorruptionDataset, max_truncated_length
from data_scripts.text_files import BadInput, bad_input_in_one_line
from modeling_posgpt import PosGPTConfig, build_tokenizer
from training import ArchitectureArguments, PosGPTTrainer, new_model, parse_arguments, starting_checkpoint


@dataclass
class DataTrainingArguments:
    """What to read, and whether an earlier result may be replaced."""

    train_file: str = field(metadata={"help": "The corpus: UTF-8 text, a document a line."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a model that is already there."})


def main() -> None:
    architecture, data_args, training_args = parse_arguments(
        [ArchitectureArguments, DataTrainingArguments, TrainingArguments], section="pretrain"
    )
    if training_args.train_sampling_strategy not in ("random", "group_by_length"):
        strategy = training_args.train_sampling_strategy
        raise BadInput(f"train_sampling_strategy is {strategy!r}; choose random or group_by_length.")
    checkpoint = starting_checkpoint(training_args, data_args.overwrite_output_dir)

    block_size = architecture.block_size or PosGPTConfig.max_position_embeddings
    with training_args.main_process_first():
        corpus = load_corpus(data_args.train_file)
        tokenizer = build_tokenizer((text for batch in corpus.iter(1000) for text in batch["text"]), block_size)
        documents = tokenize_corpus(corpus, tokenizer)
    model = new_model(architecture, tokenizer, training_args)
    seed = training_args.seed if training_args.data_seed is None else training_args.data_seed
    dataset = SpanCorruptionDataset(documents, block_size, seed=seed)

    if training_args.should_log:
        longer = int((dataset.document_lengths > block_size).sum())
        print(
            f"{len(dataset):,} documents, {dataset.document_lengths.sum():,} characters, {len(tokenizer)} symbols;"
            f" {model.num_parameters():,} parameters. {longer:,} documents are longer than the block of {block_size}:"
            f" span corruption reads at most the first {max_truncated_length(block_size)} characters of a document."
        )
    trainer = PosGPTTrainer(
        model,
        training_args,
        train_dataset=dataset,
        data_collator=SpanCorruptionCollator(tokenizer),
        processing_class=tokenizer,
        card_facts={"Objective": f"character span corruption of {len(dataset):,} documents; not finetuned"},
    )
    trainer.run(checkpoint)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
