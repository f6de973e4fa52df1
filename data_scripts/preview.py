"""Print examples as the model will read them.

    python -m data_scripts.preview corruption wiki.txt
    python -m data_scripts.preview windows wiki.txt
    python -m data_scripts.preview birthplaces birth_places_train.tsv

The character a position is graded on stands in the second line of each example; a dot where there is no loss.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

from transformers import PreTrainedTokenizerBase

from data_scripts.birthplaces import BirthplaceCollator, encode_birthplaces, load_birthplaces
from data_scripts.corpus import load_corpus, tokenize_corpus
from data_scripts.epochs import EpochSampler
from data_scripts.name_windows import NameWindowsCollator, NameWindowsDataset, keyed_documents
from data_scripts.span_corruption import SpanCorruptionCollator, SpanCorruptionDataset
from data_scripts.text_files import bad_input_in_one_line, check_at_least
from modeling_posgpt import build_tokenizer


def show(batch: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    """Print each row of `input_ids`, and under it its `labels`, a character a token."""
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        print("input ", tokenizer.decode(ids))
        print("labels", "".join("·" if label == -100 else tokenizer.decode([label]) for label in labels))
        print()


def main() -> None:
    parser = ArgumentParser(
        description="Print examples as the model will read them.", formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "kind", choices=["corruption", "windows", "birthplaces"], help="Which kind of example to show."
    )
    parser.add_argument("file", help="wiki.txt for corruption and windows, a TSV with answers for birthplaces.")
    parser.add_argument("--examples", type=int, default=4, help="How many to show.")
    parser.add_argument("--block_size", type=int, default=128, help="The block, in characters.")
    parser.add_argument("--seed", type=int, default=0, help="What the draws follow from.")
    parser.add_argument("--epoch", type=int, default=0, help="Which epoch's draws to show.")
    arguments = parser.parse_args()

    with bad_input_in_one_line():
        check_at_least(1, examples=arguments.examples)
        if arguments.kind in ("corruption", "windows"):
            corpus = load_corpus(arguments.file)
            tokenizer = build_tokenizer(corpus["text"], arguments.block_size)
            if arguments.kind == "corruption":
                documents = tokenize_corpus(corpus, tokenizer)
                dataset = SpanCorruptionDataset(documents, arguments.block_size, arguments.seed)
                collator = SpanCorruptionCollator(tokenizer)
            else:
                documents = keyed_documents(corpus, dates=False)
                dataset = NameWindowsDataset(documents, tokenizer, arguments.block_size, arguments.seed)
                collator = NameWindowsCollator(tokenizer)
            dataset.set_epoch(arguments.epoch)
            items = list(EpochSampler(dataset, 1, group_by_length=False))[: arguments.examples]
        else:
            pairs = load_birthplaces(arguments.file, answers=True)
            tokenizer = build_tokenizer((text for row in pairs for text in row.values()), arguments.block_size)
            dataset = encode_birthplaces(pairs, tokenizer, arguments.file)
            items = range(min(arguments.examples, len(dataset)))
            collator = BirthplaceCollator(tokenizer)
        show(collator([dataset[item] for item in items]), tokenizer)


if __name__ == "__main__":
    main()
