"""Asking a PosGPT in words: answers with their probabilities, and the probability of each place one knows of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from .tokenization_posgpt import MASK_TOKEN

QUESTION_START, QUESTION_END = "Where was ", " born?"


@dataclass(frozen=True)
class Answer:
    """What a model wrote, and the probability it gave to just that: all characters and the `⁇` after them, 0 to 1."""

    text: str
    probability: float


class AnsweringMixin:
    """What a causal language model needs to be asked questions of the form `Where was NAME born?`."""

    @torch.inference_mode()
    def answer(
        self,
        questions: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 128,
        max_new_tokens: int = 32,
    ) -> list[Answer]:
        """Answer each question greedily: what the model writes between the `⁇` after the question and the next.

        Questions of like length share a batch, padded on the left. An answer that `max_new_tokens`, or the end of the
        block, cuts off has the probability of the characters it has.

        Returns:
            An answer each, in the order of the questions.

        Raises:
            ValueError: a question leaves no room for an answer in the block.
        """
        self.eval()
        rooms = self._rooms(questions)
        order = sorted(range(len(questions)), key=lambda index: -rooms[index])
        # Questions with too little room for an answer share a batch with none that has more, or it would be cut, too.
        batches = []
        for room, group in groupby(order, key=lambda index: min(rooms[index], max_new_tokens)):
            group = list(group)
            batches += [(room, group[start : start + batch_size]) for start in range(0, len(group), batch_size)]
        answers: list[Answer | None] = [None] * len(questions)
        for room, indices in tqdm(batches, desc="Answering", unit="batch", disable=len(batches) < 2 or None):
            prompts = [questions[index] + MASK_TOKEN for index in indices]
            inputs = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt").to(self.device)
            longest = inputs["input_ids"].shape[1]
            generated = self.generate(
                **inputs,
                max_new_tokens=room,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
            written = generated.sequences[:, longest:]
            # (batch, new tokens): the log-probability of each character that was written.
            scores = self.compute_transition_scores(generated.sequences, generated.logits, normalize_logits=True)
            for index, ids, row in zip(indices, written.tolist(), scores.float(), strict=True):
                end = ids.index(tokenizer.mask_token_id) if tokenizer.mask_token_id in ids else len(ids)
                answers[index] = Answer(tokenizer.decode(ids[:end]), float(row[: end + 1].sum().exp()))
        return answers

    def answer_birthplaces(
        self, names: Sequence[str], tokenizer: PreTrainedTokenizerBase, **options
    ) -> list[tuple[str, float]]:
        """Answer where people were born, given their names: (place, probability) each. See `answer` for the options."""
        questions = [f"{QUESTION_START}{name}{QUESTION_END}" for name in names]
        return [(answer.text, answer.probability) for answer in self.answer(questions, tokenizer, **options)]

    def _rooms(self, questions: Sequence[str]) -> list[int]:
        """How many characters of the block each question and its `⁇` leave.

        Raises:
            ValueError: one leaves none.
        """
        block_size = self.config.max_position_embeddings
        rooms = [block_size - len(question) - len(MASK_TOKEN) for question in questions]
        for question, room in zip(questions, rooms, strict=True):
            if room < 1:
                raise ValueError(
                    f"a question has {len(question)} characters and the model's block {block_size}: no room for an"
                    f" answer to {question[:40]!r}…"
                )
        return rooms

    @torch.inference_mode()
    def score_answers(
        self,
        questions: Sequence[str],
        candidates: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 16,
        least: float = 1e-5,
    ) -> torch.Tensor:
        """Score every candidate as the answer to every question.

        The candidates are read as a tree, character by character, so that a beginning they share is read once and one that
        the model gives next to no probability is not read on: its probability is divided equally among those that begin so.
        What is read is scored exactly.

        Args:
            batch_size: Questions at a time.
            least: A beginning that is less probable than this is not read on.

        Returns:
            (questions, candidates) in float32 on the CPU: log P(candidate⁇ | question⁇); -inf for a candidate that does not
            fit the block after its question.

        Raises:
            ValueError: a question leaves no room for an answer in the block.
        """
        self.eval()
        rooms = self._rooms(questions)
        lengths = torch.tensor([len(candidate) + len(MASK_TOKEN) for candidate in candidates])
        # For each beginning, the candidates that begin so, by the character that comes next.
        tree: dict[str, dict[str, list[int]]] = {}
        for index, candidate in enumerate(candidates):
            for end, character in enumerate(candidate + MASK_TOKEN):
                tree.setdefault(candidate[:end], {}).setdefault(character, []).append(index)
        id_of = {
            character: tokenizer.convert_tokens_to_ids(character) for after in tree.values() for character in after
        }
        scores, threshold = torch.full((len(questions), len(candidates)), -torch.inf), math.log(least or 1e-300)
        for start in tqdm(range(0, len(questions), batch_size), desc="Scoring", unit="batch", disable=None):
            asked = questions[start : start + batch_size]
            prompts = [question + MASK_TOKEN for question in asked]
            inputs = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt").to(self.device)
            ids, mask, cache = inputs["input_ids"], inputs["attention_mask"], None
            # Question, beginning of an answer, log-probability: a row of the batch each.
            beginnings = [(row, "", 0.0) for row in range(len(asked))]
            while beginnings:
                output = self(ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
                log_probs = output.logits[:, -1].float().log_softmax(-1).tolist()
                grown, parents = [], []
                for parent, (row, text, score) in enumerate(beginnings):
                    for character, alike in tree[text].items():
                        total = score + log_probs[parent][id_of[character]]
                        if character == MASK_TOKEN:
                            scores[start + row, alike] = total
                        elif total < threshold:
                            scores[start + row, alike] = total - math.log(len(alike))
                        elif len(text) + 1 < rooms[start + row]:
                            grown.append((row, text + character, total))
                            parents.append(parent)
                beginnings, cache = grown, output.past_key_values
                chosen = torch.tensor(parents, dtype=torch.long, device=self.device)
                new = torch.tensor([id_of[text[-1]] for _, text, _ in grown], dtype=torch.long, device=self.device)
                mask = torch.cat([mask[chosen], mask.new_ones(len(grown), 1)], dim=1)
                if cache is None:
                    # What reads through latents has none and reads everything again.
                    ids = torch.cat([ids[chosen], new[:, None]], dim=1)
                else:
                    cache.batch_select_indices(chosen)
                    ids = new[:, None]
        return scores.masked_fill(lengths > torch.tensor(rooms)[:, None], -torch.inf)
