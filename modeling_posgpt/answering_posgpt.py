"""Asking a PosGPT in words: its answers with their probabilities, and the probabilities of given answers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from .tokenization_posgpt import MASK_TOKEN


@dataclass(frozen=True)
class Answer:
    """What a model wrote and the probability of just that, 0 to 1: of all its characters and the `⁇` that ends them."""

    text: str
    probability: float


def iterate_batches(
    texts: Sequence[str], numbers: Sequence[int], batch_size: int, desc: str
) -> Iterator[tuple[int, list[int]]]:
    """Yield batches of texts that are continued by the same number of characters, as similar in length as possible.

    Each is the number, the largest first, and the indices of the batch's texts. A progress bar shows several, called `desc`.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; choose at least 1.")
    batches = []
    order = sorted(range(len(texts)), key=lambda index: (-numbers[index], len(texts[index])))
    for number, group in groupby(order, key=numbers.__getitem__):
        indices = list(group)
        batches += [(number, indices[start : start + batch_size]) for start in range(0, len(indices), batch_size)]
    yield from tqdm(batches, desc=desc, unit="batch", disable=len(batches) < 2 or None)


@contextmanager
def in_evaluation_mode(model: Any) -> Iterator[None]:
    """Turn dropout off, and afterwards on again if it was on: questions may be asked while a model is trained."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class AnsweringMixin:
    """Lets a causal language model that was trained on `QUESTION⁇ANSWER⁇` be asked such questions."""

    # What it uses of the model that it is mixed into.
    config: Any
    device: Any
    generate: Any
    compute_transition_scores: Any
    __call__: Any

    def answer(
        self,
        questions: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 128,
        max_new_tokens: int | None = None,
    ) -> list[Answer]:
        """Answer each question greedily: with what the model writes between the `⁇` after the question and the next.

        Questions of similar length share a batch, padded on the left. An answer cut off by `max_new_tokens` (by default
        `config.max_answer_length`), or by the model's maximum sequence length, has the probability of the characters it has.
        Raises ValueError as `_compute_answer_budgets` does.
        """
        return [best for (best,) in self.list_answers(questions, tokenizer, 1, batch_size, max_new_tokens)]

    @torch.inference_mode()
    def list_answers(
        self,
        questions: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        number: int = 5,
        batch_size: int = 128,
        max_new_tokens: int | None = None,
    ) -> list[list[Answer]]:
        """Return the likeliest answers to each question that a beam search finds, the likeliest first.

        The search keeps twice as many beams as the `number` of answers; a batch has `batch_size` beams. See `answer`.
        """
        if number < 1:
            raise ValueError(f"number is {number}; choose at least 1.")
        beams, answers = 2 * number if number > 1 else 1, dict[int, list[Answer]]()
        # Without a length penalty, the search goes by the probability of the whole answer.
        search: dict[str, Any] = {"length_penalty": 0.0, "early_stopping": False} if number > 1 else {}
        search |= {"num_beams": beams, "num_return_sequences": number, "do_sample": False}
        search |= {"return_dict_in_generate": True, "output_logits": True}
        with in_evaluation_mode(self):
            longest = self.config.max_answer_length if max_new_tokens is None else max_new_tokens
            budgets = [min(budget, longest) for budget in self._compute_answer_budgets(questions)]
            rows = min(batch_size, max(1, batch_size // beams))
            for budget, indices in iterate_batches(questions, budgets, rows, "Answering"):
                prompts = [questions[index] + MASK_TOKEN for index in indices]
                inputs = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt").to(self.device)
                generated = self.generate(**inputs, max_new_tokens=budget, **search)
                written = generated.sequences[:, inputs["input_ids"].shape[1] :]
                # (batch * number, new tokens): the log-probability of each character that was written.
                scores = self.compute_transition_scores(
                    generated.sequences, generated.logits, generated.get("beam_indices"), normalize_logits=True
                )
                found = []
                for ids, row in zip(written.tolist(), scores.float().cpu(), strict=True):
                    end = ids.index(tokenizer.mask_token_id) if tokenizer.mask_token_id in ids else len(ids)
                    found.append(Answer(str(tokenizer.decode(ids[:end])), float(row[: end + 1].sum().exp())))
                answers |= {index: found[row * number : (row + 1) * number] for row, index in enumerate(indices)}
        return [answers[index] for index in range(len(questions))]

    def ask(
        self, titles: Sequence[str], tokenizer: PreTrainedTokenizerBase, relation: str | None = None, **options
    ) -> list[tuple[str, float]]:
        """Ask for one relation of each title, e.g. where a person was born, in the relation's first wording.

        Args:
            titles: What to ask about, e.g. names of people.
            relation: A name in `config.relations`; by default the first.
            options: Passed on to `answer`: `batch_size`, `max_new_tokens`.

        Returns:
            (answer, its probability) for each title, in their order.

        Raises:
            ValueError: the configuration has no such relation, a title is a whole question, or as `answer` does.
        """
        if not (relations := self.config.relations):
            raise ValueError(
                "the model's configuration has no relations to ask for: set model.config.relations, e.g."
                ' {"capital": {"wordings": ["What is the capital of {title}?"]}}.'
            )
        relation = next(iter(relations)) if relation is None else relation
        if relation not in relations:
            raise ValueError(f"relation is {relation!r}; choose one of {', '.join(relations)}.")
        if isinstance(titles, str):
            raise ValueError(f"titles is one text; give a list: [{titles!r}].")
        wordings = [wording.split("{title}") for each in relations.values() for wording in each["wordings"]]
        for title in titles:
            if any(all(parts) and title.startswith(parts[0]) and title.endswith(parts[1]) for parts in wordings):
                raise ValueError(f"{title!r} is a whole question; give what it asks about, or call `answer` with it.")
        # Not str.format: titles and wordings may contain other braces.
        questions = [relations[relation]["wordings"][0].replace("{title}", title) for title in titles]
        return [(answer.text, answer.probability) for answer in self.answer(questions, tokenizer, **options)]

    def count_free_positions(self, question: str) -> int:
        """Return how many characters may be written after a question and its `⁇`; without any, it cannot be asked."""
        return self.config.max_position_embeddings - len(question) - len(MASK_TOKEN)

    def _compute_answer_budgets(self, questions: Sequence[str]) -> list[int]:
        """Return `count_free_positions` of each question.

        Raise ValueError when a question leaves none free, is empty or has its `⁇` already, or a single one is not in a list; or when
        the model sees what it is to write.
        """
        if not self.config.is_causal:
            raise ValueError("a model with is_causal=False sees what follows, and cannot be asked.")
        if isinstance(questions, str):
            raise ValueError("questions is a text; give a list of questions, also for a single one.")
        for question in questions:
            if not question or MASK_TOKEN in question:
                raise ValueError(f"{question!r} is not a question; give text, without the {MASK_TOKEN}.")
            if self.count_free_positions(question) < 1:
                raise ValueError(
                    f"a question has {len(question)} characters and the model's max_position_embeddings is"
                    f" {self.config.max_position_embeddings}: no room for an answer to {question[:40]!r}…; shorten it."
                )
        return list(map(self.count_free_positions, questions))

    def compute_log_probs(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 128,
    ) -> Tensor:
        """Return log P(answer⁇ | question⁇) of one answer to each question, (questions,) in float32 on the CPU.

        It is -inf where the answer does not fit within the maximum sequence length after its question. Raises ValueError as
        `_compute_answer_budgets` does, and for answers that hold a `⁇`.
        """
        if isinstance(answers, str) or any(MASK_TOKEN in answer for answer in answers):
            raise ValueError(f"answers are not a list of texts without the {MASK_TOKEN} after each")
        budgets, scores = self._compute_answer_budgets(questions), torch.full((len(questions),), -torch.inf)
        # With the `⁇` after it.
        fitting = [i for i, (budget, own) in enumerate(zip(budgets, answers, strict=True)) if len(own) < budget]
        texts, written = ([column[i] + MASK_TOKEN for i in fitting] for column in (questions, answers))
        scores[fitting] = self.compute_continuation_log_probs(texts, written, tokenizer, batch_size)
        return scores

    @torch.inference_mode()
    def compute_continuation_log_probs(
        self,
        texts: Sequence[str],
        continuations: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 128,
    ) -> Tensor:
        """Return log P(continuation | text) of one continuation of each text, (texts,) in float32 on the CPU.

        Raises ValueError for an empty text, or one that is longer than the maximum sequence length with its continuation.
        """
        scores = torch.empty(len(texts))
        own = [text + continuation for text, continuation in zip(texts, continuations, strict=True)]
        if not all(texts) or max(map(len, own), default=0) > self.config.max_position_embeddings:
            raise ValueError(
                f"a text is empty, or has more than {self.config.max_position_embeddings} characters with its continuation"
            )
        with in_evaluation_mode(self):
            for _, batch in iterate_batches(own, [0] * len(own), batch_size, "Scoring"):
                read = [own[i] for i in batch]
                inputs = tokenizer(read, padding=True, padding_side="right", return_tensors="pt").to(self.device)
                # What the last character of the shortest text, and all that follows it, is continued with.
                first = min(len(texts[i]) for i in batch) - 1
                kept = torch.arange(first, inputs["input_ids"].shape[1] - 1, device=self.device)
                logits = self(**inputs, use_cache=False, logits_to_keep=kept).logits.float()
                written = inputs["input_ids"][:, first + 1 :, None]
                log_probs = logits.log_softmax(-1).gather(-1, written)[..., 0].cpu()
                for row, i in zip(log_probs, batch, strict=True):
                    scores[i] = row[len(texts[i]) - 1 - first : len(own[i]) - 1 - first].sum()
        return scores
