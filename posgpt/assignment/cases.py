"""What the hidden tests compare with: arguments for each part's function, and what PosGPT's own code makes of them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase

from data_scripts.questions import Questions, encode_questions
from data_scripts.relations import BIRTHPLACE
from data_scripts.span_corruption import SpanCorruptionCollator, draw_cuts
from data_scripts.synthetic_world import World
from modeling_posgpt import MASK_TOKEN, PosGPTConfig, build_tokenizer
from modeling_posgpt.answering_posgpt import AnsweringMixin
from modeling_posgpt.layers import eager_attention_forward
from modeling_posgpt.position_embeddings import PosGPTRotaryEmbedding, rotate
from posgpt.evaluation.scoring import count_correct

# The arguments of a call, and what it is to return.
Case = tuple[tuple, Any]
# What a model may write after a question's mask.
_WRITTEN = ("Rome⁇", "Rome⁇ Oslo⁇Lima⁇", "New York", "⁇Rome⁇", " St. Louis, Missouri ⁇\n", "")
# Two of eight are right, and three are the baseline's.
_PREDICTIONS = ("London", "Rome", "london", " Rome", "Rome.", "", "Oslo", "Paris")
_ANSWERS = ("London", "Rome", "London", "Rome", "Rome", "London", "Lima", "Oslo")


def _draw(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).float()


def build_attention_cases(rng: np.random.Generator, world: World) -> list[Case]:
    """Heads of several widths; the scores of the last are large."""
    cases: list[Case] = []
    for shape, factor in (((2, 4, 9, 8), 1.0), ((1, 2, 33, 32), 1.0), ((3, 1, 1, 4), 1.0), ((1, 2, 12, 16), 30.0)):
        query, key, value = (_draw(rng, *shape) for _ in range(3))
        query *= factor
        length, head_dim = shape[-2:]
        is_visible = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
        output, _ = eager_attention_forward(
            nn.Module(), query, key, value, attention_mask=is_visible, scaling=head_dim**-0.5
        )
        cases.append(((query, key, value), output.transpose(1, 2).contiguous()))
    return cases


def build_rotary_cases(rng: np.random.Generator, world: World) -> list[Case]:
    """Heads of several widths, up to the course's maximum sequence length, and another base than the course's."""
    cases: list[Case] = []
    for shape, base in (((2, 4, 9, 8), None), ((1, 2, 128, 32), None), ((3, 1, 1, 4), None), ((1, 2, 16, 8), 500.0)):
        given = () if base is None else (base,)
        x = _draw(rng, *shape)
        sizes = {"hidden_size": shape[1] * shape[-1], "num_attention_heads": shape[1], "rope_theta": base or 10_000.0}
        config = PosGPTConfig.from_dict({"position_embedding_type": "rotary", **sizes})
        cos, sin = PosGPTRotaryEmbedding(config)(x, torch.arange(shape[-2])[None])
        cases.append(((x, *given), rotate(x, cos, sin)))
    return cases


def build_span_corruption_cases(rng: np.random.Generator, world: World) -> list[Case]:
    """Documents of the world, whole and shortened, each cut at other places."""
    documents = [document for person in range(50) for document in world.biographies(person)]
    documents += [document[:length] for length, document in zip(range(1, 20), documents, strict=False)]
    cases: list[Case] = []
    for document in documents:
        max_length, draws = (128, 64)[rng.integers(2)], rng.random(3)
        tokenizer = build_tokenizer([document], max_length)
        cuts = draw_cuts(draws[None], np.array([len(document)]), max_length)[0]
        feature = {"input_ids": np.array(tokenizer(document, verbose=False)["input_ids"]), "cuts": cuts}
        row = SpanCorruptionCollator(tokenizer)([feature])["input_ids"][0]
        cases.append(((document, draws.tolist(), max_length), tokenizer.decode(row)))
    return cases


def build_finetuning_cases(rng: np.random.Generator, world: World) -> list[Case]:
    """Questions of the world, with a vocabulary that lacks some of their characters."""
    asked = [world.person(index) for index in range(5)]
    tokenizer = build_tokenizer([world.biographies(0)[0]], 128)
    pairs = {
        "question": [BIRTHPLACE.ask(person.name) for person in asked],
        "answer": [person.birth_place for person in asked],
    }
    encoded = encode_questions(Questions(("",), (BIRTHPLACE,) * len(asked), Dataset.from_dict(pairs)), tokenizer)
    ids = tokenizer.get_vocab()
    return [
        ((question, answer, ids), (row["input_ids"], row["labels"]))
        for question, answer, row in zip(*pairs.values(), encoded, strict=True)
    ]


class _Dictated(AnsweringMixin, nn.Module):
    """Writes what it is told to, so that only the cutting of an answer is left of asking a model."""

    config, device = PosGPTConfig(), "cpu"

    def __init__(self, text: str, tokenizer: PreTrainedTokenizerBase):
        super().__init__()
        self.written = torch.tensor([tokenizer(text)["input_ids"]], dtype=torch.long)

    def generate(self, input_ids: torch.Tensor, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(sequences=torch.cat([input_ids, self.written], dim=1), logits=())

    def compute_transition_scores(self, *arguments: Any, **options: Any) -> torch.Tensor:
        return torch.zeros(self.written.shape)


def build_answer_cases(rng: np.random.Generator, world: World) -> list[Case]:
    """Several ⁇ after the question, one, or none."""
    question = BIRTHPLACE.ask(world.person(0).name)
    tokenizer = build_tokenizer([question, *_WRITTEN], 128)
    return [
        ((question + MASK_TOKEN + written,), _Dictated(written, tokenizer).answer([question], tokenizer)[0].text)
        for written in _WRITTEN
    ]


def build_accuracy_cases(rng: np.random.Generator, world: World) -> list[Case]:
    """Right and wrong answers, some of them nearly right; beside the usual baseline and another one."""
    cases: list[Case] = []
    for predictions, baseline in ((_PREDICTIONS, None), (_ANSWERS, None), (_PREDICTIONS, _ANSWERS[-1])):
        given = () if baseline is None else (baseline,)
        everyone = [baseline or BIRTHPLACE.baseline] * len(_ANSWERS)
        shares = count_correct(predictions, _ANSWERS).accuracy, count_correct(everyone, _ANSWERS).accuracy
        cases.append(((list(predictions), list(_ANSWERS), *given), shares))
    return cases


BUILDERS: dict[str, Callable[[np.random.Generator, World], list[Case]]] = {
    "attention": build_attention_cases,
    "rotary": build_rotary_cases,
    "span_corruption": build_span_corruption_cases,
    "finetuning": build_finetuning_cases,
    "answer": build_answer_cases,
    "accuracy": build_accuracy_cases,
}
