"""Asking a PosGPT in words: answers with their probabilities, and the probability of each place one knows of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
        """
        self.eval()
        order = sorted(range(len(questions)), key=lambda index: len(questions[index]))
        answers: list[Answer | None] = [None] * len(questions)
        starts = range(0, len(order), batch_size)
        for start in tqdm(starts, desc="Answering", unit="batch", disable=len(starts) < 2 or None):
            indices = order[start : start + batch_size]
            prompts = [questions[index] + MASK_TOKEN for index in indices]
            inputs = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt").to(self.device)
            longest = inputs["input_ids"].shape[1]
            generated = self.generate(
                **inputs,
                max_new_tokens=min(max_new_tokens, self.config.max_position_embeddings - longest),
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

    @torch.inference_mode()
    def score_answers(
        self,
        questions: Sequence[str],
        candidates: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 16,
        least: float = 1e-4,
    ) -> torch.Tensor:
        """Score every candidate as the answer to every question.

        The candidates are read as a tree, character by character, so that a beginning they share is read once and one that
        the model gives next to no probability is not read on. What is read is scored exactly.

        Args:
            batch_size: Questions at a time.
            least: A candidate counts as impossible when it, or a beginning of it, is less probable than this.

        Returns:
            (questions, candidates) in float32 on the CPU: log P(candidate⁇ | question⁇); -inf for an impossible candidate,
            and for one that does not fit the block after its question.
        """
        self.eval()
        number = {candidate + MASK_TOKEN: index for index, candidate in enumerate(candidates)}
        next_characters: dict[str, set[str]] = {}
        for text in number:
            for end, character in enumerate(text):
                next_characters.setdefault(text[:end], set()).add(character)
        id_of = {character: tokenizer.convert_tokens_to_ids(character) for text in number for character in text}
        scores = torch.full((len(questions), len(candidates)), -torch.inf)
        for start in tqdm(range(0, len(questions), batch_size), desc="Scoring", unit="batch", disable=None):
            asked = questions[start : start + batch_size]
            prompts = [question + MASK_TOKEN for question in asked]
            inputs = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt").to(self.device)
            ids, mask, cache = inputs["input_ids"], inputs["attention_mask"], None
            room = [self.config.max_position_embeddings - len(prompt) for prompt in prompts]
            # Question, beginning of an answer, log-probability: a row of the batch each.
            beginnings = [(row, "", 0.0) for row in range(len(asked))]
            while beginnings:
                output = self(ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
                log_probs = output.logits[:, -1].float().log_softmax(-1).tolist()
                grown, parents = [], []
                for parent, (row, text, score) in enumerate(beginnings):
                    for character in next_characters[text]:
                        longer, total = text + character, score + log_probs[parent][id_of[character]]
                        if len(longer) > room[row] or (least and total < math.log(least)):
                            continue
                        if longer in number:
                            scores[start + row, number[longer]] = total
                        else:
                            grown.append((row, longer, total))
                            parents.append(parent)
                beginnings, cache = grown, output.past_key_values
                chosen = torch.tensor(parents, dtype=torch.long, device=self.device)
                cache.batch_select_indices(chosen)
                ids = torch.tensor([[id_of[text[-1]]] for _, text, _ in grown], device=self.device)
                mask = torch.cat([mask[chosen], mask.new_ones(len(grown), 1)], dim=1)
        return scores
