"""What every pretraining objective has: its options, and the training data that it makes of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.edits import load_edits
from data_scripts.epochs import EpochDataset
from data_scripts.options import Range, option
from data_scripts.questions import Questions
from data_scripts.relations import BIRTHPLACE, Relation


@dataclass(frozen=True)
class TrainingData:
    """What an objective makes of a corpus and questions."""

    dataset: EpochDataset
    # Makes a batch of `input_ids`, `labels` and what else the model needs out of the dataset's features.
    collator: Callable[[list[dict]], dict[str, torch.Tensor]]
    # One or more sentences on what of the corpus is read.
    description: str
    # The most characters of what is taken for an answer where no question is given.
    longest_answer: int = 0
    # Says of questions that spans were not chosen by how many of their answers are asked for. It takes as long as choosing again.
    describe_held_out: Callable[[], Iterable[str]] = tuple


@dataclass
class ObjectiveConfig:
    """The options that all objectives have; an objective derives from this, adds its own and builds its data."""

    # What `--objective` calls it.
    name: ClassVar[str]
    # Whether rows are documents' text, which a trained model can continue. Otherwise a row asks for a span as a question asks
    # for its answer, in the wordings of relations, and ends it with `⁇`.
    reads_text: ClassVar[bool] = True
    # Whether a row may hold several texts, which a model with latents cannot read.
    packs_texts: ClassVar[bool] = False

    _argument_group_name = "the objective's options"

    question_share: Annotated[float, Range(0, 1)] = option(
        "How often a document comes with a training question about its title.", default=0.3
    )
    ask_dates: bool = option("Whether numbers and months are asked for, too, beside names.", default=True)
    edits_file: str | None = option(
        "TSV of edits: a title, words of its documents and answers, and what they say instead, in as many characters. All else is"
        " read as without it.",
        default=None,
    )

    def build(
        self,
        corpus: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        seed: int,
        questions: Questions | None = None,
        relations: Sequence[Relation] = (BIRTHPLACE,),
    ) -> TrainingData:
        """Build the training data, or raise BadInput where there is nothing to train on.

        Args:
            corpus: From `load_corpus`.
            tokenizer: From `build_tokenizer`; its `model_max_length` is the maximum sequence length, in characters.
            seed: Determines all random draws.
            questions: With answers; mixed in.
            relations: What documents are asked for without questions, by an objective that asks.
        """
        raise NotImplementedError

    def edit(
        self, corpus: Dataset, tokenizer: PreTrainedTokenizerBase, questions: Questions | None
    ) -> tuple[Dataset, Questions | None]:
        """Return corpus and questions as `edits_file` has them."""
        if self.edits_file is None:
            return corpus, questions
        edits = load_edits(self.edits_file, corpus, tokenizer, questions)
        return edits.edit_corpus(corpus), edits.edit_questions(questions) if questions else None

    def build_prompt(
        self, relation: Relation, title: str, text: str, start: int, end: int, max_length: int
    ) -> str | None:
        """Return what asks for `text[start:end]` as a row does, without the `⁇` before the span; None: no row asks for it.

        It measures what a trained model recalls in the form that it has read (studies/recall.py). If rows are text
        (`reads_text`), what comes before the first `⁇` of the prompt, or before its end, is the text up to the span.
        """
        raise NotImplementedError
