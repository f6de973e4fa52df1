"""Show examples as a model reads them, with the positions that it is graded on."""

from collections.abc import Iterator
from itertools import islice

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.documents import find_text_start, find_titles
from data_scripts.epochs import EpochSampler, TrainingData


def render_documents(documents: Dataset, asked: dict[str, list[str]]) -> Iterator[str]:
    """Yield a line per document of a corpus: its title, if it has one, `|` and its text; and a line of what is asked for.

    Args:
        asked: From `EpochDataset.list_asked`.
    """
    for title, text in zip(find_titles(documents[:]), documents["text"], strict=True):
        yield f"document {title} | {text[find_text_start(title) :]}" if title else f"document {text}"
        if title in asked:
            yield f"asked    {', '.join(asked[title])}"


def render_batch(batch: dict, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield two lines per row: its `input_ids` as text, and below each character the label, a dot where there is no loss."""
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        graded = ("·" if label == -100 else str(tokenizer.decode([label])) for label in labels)
        yield f"input  {tokenizer.decode(ids)}"
        yield f"labels {''.join(graded)}"


def draw_examples(data: TrainingData, sampler: EpochSampler, examples: int) -> dict:
    """Return a batch of the first `examples` that training reads, in the sampler's order."""
    return data.collator([data.dataset[item] for item in islice(sampler, examples)])
