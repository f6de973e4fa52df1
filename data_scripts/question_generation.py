"""Question generation: which names of a document training questions would ask for, and with which question.

What stands before a name of a document, and the name, are the input; the question that it is the answer to is the output,
without the title, or nothing:

    born in: Copenhagen⁇Where was NAME born?⁇
    played as a midfielder for: AB⁇⁇

The training questions give the examples. A model that is trained on them writes questions about all other documents
(answer-aware question generation, Du et al. 2017, arXiv 1705.00106), which can be mixed into pretraining (Lewis et al. 2021,
arXiv 2102.07033). The title is not part of a row: what the model learns about the documents of some titles applies to all.
"""

from collections.abc import Sequence
from typing import NamedTuple

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.questions import Questions, encode_answers
from data_scripts.relations import Relation
from data_scripts.salient_spans import add_titles_and_spans
from data_scripts.span_selectors import SpanArguments, choose_selectors, select_spans
from data_scripts.words import join_words
from modeling_posgpt import MASK_TOKEN

# Stands between the words before a span and the span, and between it and the words after it.
_SEPARATOR = ": "


class Candidate(NamedTuple):
    """A span of a document that questions may ask for; `prompt`, the words beside it and the span, is what a model sees."""

    title: str
    prompt: str
    span: str
    relations: tuple[Relation, ...]


def list_own_texts(relations: Sequence[Relation]) -> list[str]:
    """Return what rows contain besides documents and answers, for the vocabulary."""
    return [_SEPARATOR, *(relation.form for relation in relations)]


def list_candidates(
    corpus: Dataset, questions: Questions, options: SpanArguments, tokenizer: PreTrainedTokenizerBase
) -> list[Candidate]:
    """List the spans that questions may ask for: those that the rows of name-keyed windows ask for.

    A prompt that leaves no room for the longest question within the tokenizer's `model_max_length` loses its beginning; a span that
    does not fit behind its title, in a question, is left out. Raises BadInput where a question leaves no room for a span.
    """
    documents = add_titles_and_spans(corpus, dates=True)
    relations, max_length = questions.relations, tokenizer.model_max_length
    longest = max((relation.form for relation in relations), key=len)
    room = max_length - len(longest + MASK_TOKEN + MASK_TOKEN)
    if room < 1:
        raise BadInput(f"{longest!r} leaves no room for a name in {max_length} characters; raise --block_size.")
    room_in_question = max_length - len(MASK_TOKEN + MASK_TOKEN) - max(each.wording_length for each in relations)
    candidates = []
    selectors = choose_selectors(documents, questions, options)
    for row in select_spans(documents, selectors, options, tokenizer, room_in_question):
        for span, numbers, before, after in zip(
            row["asked"], row["asked_by"], row["before"], row["after"], strict=True
        ):
            left, right = (join_words(words.split()).lstrip() for words in (before, after))
            prompt = _SEPARATOR.join([left, span, right] if right else [left, span])[-room:]
            candidates.append(Candidate(row["title"], prompt, span, tuple(relations[i] for i in numbers)))
    return candidates


def encode_examples(
    candidates: Sequence[Candidate], questions: Questions, tokenizer: PreTrainedTokenizerBase
) -> Dataset:
    """Turn the candidates of titles that questions ask about into `input_ids` of `prompt⁇question⁇`, with loss after the
    first `⁇`.

    Of a title that some relations do not ask about, spans that these may ask for are left out, unless they are answers.
    """
    answers = questions.answers_by_relation
    examples: list[tuple[str, str]] = []
    for candidate in candidates:
        asked = [relation for relation in candidate.relations if (candidate.title, relation) in answers]
        forms = [relation.form for relation in asked if candidate.span in answers[candidate.title, relation]]
        if not forms and len(asked) == len(candidate.relations):
            forms = [""]
        examples += [(candidate.prompt, form) for form in forms]
    if not any(form for _, form in examples):
        raise BadInput(
            f"{questions.path}: none of its answers is a name that stands behind a word in the document of its title;"
            " questions are learned from such answers."
        )
    prompts, targets = map(list, zip(*examples, strict=True))
    # The prompt takes the place of a question, the question that of its answer.
    return encode_answers(Dataset.from_dict({"question": prompts, "answer": targets}), tokenizer)
