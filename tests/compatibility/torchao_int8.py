"""Load a PosGPT with torchao's int8 weights, and say by how much its logits move.

python tests/compatibility/torchao_int8.py runs/windows questions.tsv
"""

import sys

import torch
from asking import count_right, load, load_tokenizer, read_pairs
from torchao.quantization import Int8WeightOnlyConfig
from torchao.utils import TorchAOBaseTensor
from transformers import TorchAoConfig

model_folder, pairs = sys.argv[1], read_pairs(sys.argv[2])
tokenizer = load_tokenizer(model_folder)
inputs = tokenizer([f"{question}⁇{answer}" for question, answer in pairs], padding=True, return_tensors="pt")
is_real = inputs["attention_mask"].bool()


def read(**settings) -> tuple[torch.Tensor, int, torch.nn.Module]:
    model = load(model_folder, **settings)
    with torch.no_grad():
        logits = model(**inputs).logits[is_real]
    return logits, count_right(model, tokenizer, pairs), model


full, right_full, _ = read()
int8, right_int8, model = read(quantization_config=TorchAoConfig(Int8WeightOnlyConfig()))
quantized = [name for name, weight in model.named_parameters() if isinstance(weight, TorchAOBaseTensor)]
moved = (int8 - full).abs()
print(f"{len(quantized)} matrices in int8: all but the embeddings and the output layer")
print(
    f"logits move by {moved.mean():.4f} on average, {moved.max():.4f} at most; their standard deviation is {full.std():.2f}"
)
print(
    f"the likeliest character stays the same at {(int8.argmax(-1) == full.argmax(-1)).float().mean():.2%} of the positions"
)
print(f"right {right_full} in float32, {right_int8} in int8, of {len(pairs)}")
layers = sum(isinstance(module, torch.nn.Linear) for module in model.model.modules())
assert len(quantized) == layers, quantized
assert 0 < moved.max() < full.std()
