"""A PosGPT as ONNX, which runs where there is no Python: the graph, its quantization, and whether the answers stay the same."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime import InferenceSession
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM

INPUTS, OUTPUTS = ("input_ids", "position_ids", "attention_mask"), ("logits", "attentions")
# Any other length than 0 and 1, which torch.export would take for constants.
_LENGTH = 7


@contextmanager
def keep_quiet() -> Iterator[None]:
    """Drop the exporter's and the quantizer's advice, none of which applies here."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)


class Row(nn.Module):
    """A PosGPT that reads one row of tokens, of which the mask says what each may see.

    So a row may hold a question once, and behind it many beginnings of answers side by side.
    """

    def __init__(self, model: PosGPTForCausalLM):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read a row.

        Args:
            input_ids: (1, length).
            position_ids: (1, length): where each token stands in its own text.
            attention_mask: (1, 1, length, length), true where a token, by rows, sees another.

        Returns:
            The logits (1, length, vocabulary) and the attentions (layers, heads, length, length).
        """
        outputs = self.model(
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=attention_mask,
            output_attentions=True,
            use_cache=False,
        )
        return outputs.logits, torch.cat(outputs.attentions)


def make_row(ids: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the inputs of `Row` for one text."""
    length = len(ids)
    mask = np.tril(np.ones((length, length), dtype=bool))
    return dict(zip(INPUTS, (np.array([ids]), np.arange(length)[None], mask[None, None]), strict=True))


@torch.no_grad()
def export_model(model: PosGPTForCausalLM) -> onnx.ModelProto:
    """Export a model, loaded with eager attention, as the ONNX graph of `Row`, for rows of any length."""
    inputs = tuple(map(torch.from_numpy, make_row([0] * _LENGTH).values()))
    length = torch.export.Dim("length")
    with keep_quiet():
        program: Any = torch.onnx.export(
            Row(model).eval(),
            inputs,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_shapes=({1: length}, {1: length}, {2: length, 3: length}),
            dynamo=True,
            verbose=False,
        )
    return program.model_proto


def quantize(exported: onnx.ModelProto, hidden_size: int) -> onnx.ModelProto:
    """Return the graph with the weights of its linear layers as 8-bit integers, a scale for each output.

    What enters these layers is rounded to 8 bits as well, with a scale for each row that is read.
    """
    rows = {tensor.name: tensor.dims[0] for tensor in exported.graph.initializer if len(tensor.dims) == 2}
    # Rotary positions multiply by a small constant matrix, which is not a weight.
    others = [
        node.name for node in exported.graph.node
        if node.op_type == "MatMul" and rows.get(node.input[1], 0) < hidden_size
    ]  # fmt: skip
    with keep_quiet(), TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        quantize_dynamic(
            exported,
            file,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=others,
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(file)


def answer(
    exported: bytes, tokenizer: PreTrainedTokenizerBase, questions: Sequence[str], max_new_tokens: int
) -> list[str]:
    """Answer questions greedily with an exported model, the content of an ONNX file, as `PosGPTForCausalLM.answer` does with the model itself."""
    session = InferenceSession(exported)
    answers = []
    for question in tqdm(questions, desc="Comparing answers", unit="question"):
        ids = tokenizer(question + MASK_TOKEN)["input_ids"]
        start = len(ids)
        for _ in range(min(max_new_tokens, tokenizer.model_max_length - start)):
            (logits,) = session.run(OUTPUTS[:1], make_row(ids))
            ids.append(int(logits[0, -1].argmax()))
            if ids[-1] == tokenizer.mask_token_id:
                break
        answers.append(str(tokenizer.decode(ids[start:])).partition(MASK_TOKEN)[0])
    return answers
