"""Questions for training and for measuring while training."""

from collections import Counter

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainingArguments

from data_scripts.questions import (
    Questions,
    describe_unknown_characters,
    drop_non_ascii,
    encode_questions,
    load_questions,
)


def load_encoded_questions(
    path: str,
    tokenizer: PreTrainedTokenizerBase,
    training_args: TrainingArguments,
    ascii_only: bool = False,
    loss_on_first_mask: bool = False,
) -> tuple[Questions, Dataset]:
    """Load and encode a TSV with answers; print what it holds and which characters the tokenizer does not know.

    Args:
        ascii_only: See `drop_non_ascii`.
        loss_on_first_mask: See `encode_questions`.

    Returns:
        The questions as text, and encoded (see `encode_questions`).
    """
    with training_args.main_process_first():
        questions = load_questions(path, answers=True)
        if ascii_only:
            questions = drop_non_ascii(questions)
        encoded = encode_questions(questions, tokenizer, loss_on_first_mask)
    if training_args.should_log:
        answers = questions.answers or []
        (common, count) = Counter(answers).most_common(1)[0]
        print(
            f"{path}: {len(questions):,} {questions.relation.name} questions, the most frequent answer is {common}"
            f" ({count:,} times)."
        )
        unknown = describe_unknown_characters([*questions.texts, *answers], tokenizer, path)
        if unknown:
            print(unknown)
    return questions, encoded
