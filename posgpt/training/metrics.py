"""What is measured of the validation questions while training."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction, PreTrainedTokenizerBase

from data_scripts.files import make_file_name
from data_scripts.questions import Questions
from posgpt.tables import format_table


def reduce_logits(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Reduce logits (batch, length, symbols) to the likeliest ids (batch, length) and each row's loss in nats (batch,)."""
    losses = nn.functional.cross_entropy(logits[:, :-1].float().mT, labels[:, 1:], reduction="none")
    return logits.argmax(dim=-1), losses.sum(dim=-1)


def measure_answers(
    prediction: EvalPrediction, asked: Sequence[str] = (), questions: Sequence[str] = ()
) -> dict[str, float]:
    """Measure the accuracy and the loss of all rows together, whatever batches they were read in.

    Args:
        asked: The name of the relation that each row asks for.
        questions: Each row's question; rows of the same one have different correct answers, of which one is enough. By default, each row
            has its own.

    Returns:
        `accuracy`, the share of questions with a row in which every answer symbol is the likeliest given the ones before, as in greedy
        decoding, and with several relations `accuracy_RELATION` of each; `loss`, in nats per graded symbol.
    """
    likeliest, losses = cast(Any, prediction.predictions)
    predicted, labels = likeliest[:, :-1], np.asarray(prediction.label_ids)[:, 1:]
    is_graded = labels != -100
    is_correct = np.all((predicted == labels) | ~is_graded, axis=1)
    _, first, question = np.unique(questions or range(len(labels)), return_index=True, return_inverse=True)
    is_answered = np.bincount(question, is_correct) > 0
    metrics = {"accuracy": float(is_answered.mean()), "loss": float(losses.sum() / is_graded.sum())}
    for name, metric in name_accuracies(asked).items():
        metrics[metric] = float(is_answered[np.array(asked)[first] == name].mean())
    return metrics


def name_accuracies(asked: Iterable[str]) -> dict[str, str]:
    """Return what the accuracy of each of several relations is logged as; of one alone, it is `accuracy`."""
    names = dict.fromkeys(asked)
    return {name: f"accuracy_{make_file_name(name)}" for name in names} if len(names) > 1 else {}


def show_answers(model: Any, tokenizer: PreTrainedTokenizerBase, samples: Questions) -> str:
    """Return a table in Markdown of questions, the model's answers and the correct ones."""
    answers = [answer.text for answer in model.answer(samples.texts, tokenizer)]
    rows = zip(samples.texts, answers, samples.answers, strict=True)
    return format_table(("question", "the model's answer", "correct answer"), rows)
