"""A PosGPT as ONNX, which runs where there is no Python."""

import logging
import warnings
from typing import Any

import onnx
import torch
from torch import nn

from modeling_posgpt import PosGPTForCausalLM

INPUTS, OUTPUTS = ("input_ids", "position_ids", "attention_mask"), ("logits", "attentions")
# Any other length than 0 and 1, which torch.export would take for constants.
_LENGTH = 7


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
        """Return the logits (1, length, vocabulary) and the attentions (layers, heads, length, length).

        Args:
            input_ids: (1, length).
            position_ids: (1, length): where each token stands in its own text.
            attention_mask: (1, 1, length, length), true where a token, by rows, sees another.
        """
        inputs = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask}
        outputs = self.model(**inputs, output_attentions=True, use_cache=False)
        return outputs.logits, torch.cat(outputs.attentions)


@torch.no_grad()
def export_model(model: PosGPTForCausalLM) -> onnx.ModelProto:
    """Export a model, loaded with eager attention, as the ONNX graph of `Row`, for rows of any length."""
    ids = torch.zeros(1, _LENGTH, dtype=torch.long)
    inputs = ids, torch.arange(_LENGTH)[None], torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool).tril()
    length = torch.export.Dim("length")
    # The exporter's advice does not apply here.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):
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
