"""Load a PosGPT with torchao's int8 weights, and say by how much its logits move.

python tests/compatibility/torchao_int8.py runs/windows questions.tsv
"""

import sys
from pathlib import Path

import torch
from torchao.quantization import Int8WeightOnlyConfig
from torchao.utils import TorchAOBaseTensor
from transformers import AutoModelForCausalLM, AutoTokenizer, TorchAoConfig

model_folder, questions_file = sys.argv[1], Path(sys.argv[2])
pairs = [line.split("\t") for line in questions_file.read_text(encoding="utf-8").splitlines()]
questions, answers = zip(*pairs, strict=True)
tokenizer = AutoTokenizer.from_pretrained(model_folder, trust_remote_code=True)
inputs = tokenizer([f"{question}⁇{answer}" for question, answer in pairs], padding=True, return_tensors="pt")
is_real = inputs["attention_mask"].bool()


def read(**settings) -> tuple[torch.Tensor, list[str], torch.nn.Module]:
    model = AutoModelForCausalLM.from_pretrained(model_folder, trust_remote_code=True, **settings).eval()
    with torch.no_grad():
        logits = model(**inputs).logits[is_real]
    return logits, [answer.text for answer in model.answer(questions, tokenizer)], model


def count_right(given: list[str]) -> int:
    return sum(text == answer for text, answer in zip(given, answers, strict=True))


full, full_answers, _ = read()
int8, int8_answers, model = read(quantization_config=TorchAoConfig(Int8WeightOnlyConfig()))
quantized = [name for name, weight in model.named_parameters() if isinstance(weight, TorchAOBaseTensor)]
moved = (int8 - full).abs()
print(f"{len(quantized)} matrices in int8: all but the embeddings and the output layer")
print(
    f"logits move by {moved.mean():.4f} on average, {moved.max():.4f} at most; their standard deviation is {full.std():.2f}"
)
print(
    f"the likeliest character stays the same at {(int8.argmax(-1) == full.argmax(-1)).float().mean():.2%} of the positions"
)
print(f"right {count_right(full_answers)} in float32, {count_right(int8_answers)} in int8, of {len(questions)}")
layers = sum(isinstance(module, torch.nn.Linear) for module in model.model.modules())
assert len(quantized) == layers, quantized
assert 0 < moved.max() < full.std()
