"""Export a PosGPT to ONNX with its cache, and ask it in ONNX Runtime: with numpy, without torch.

python tests/compatibility/onnx_export.py runs/windows questions.tsv runs/onnx
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from asking import load, load_tokenizer, read_pairs
from transformers.exporters import OnnxConfig, OnnxExporter

model_folder, pairs, output = sys.argv[1], read_pairs(sys.argv[2]), Path(sys.argv[3])
tokenizer, model = load_tokenizer(model_folder), load(model_folder)

# One graph reads the question, the other continues with the cache that the first returns.
sample = tokenizer([f"{question}⁇" for question, _ in pairs[:2]], padding=True, return_tensors="pt")
exported = OnnxExporter().export_for_generation(model, dict(sample), OnnxConfig(dynamic=True))
exported.save_pretrained(output)
prefill, decode = (onnxruntime.InferenceSession(output / f"{name}.onnx") for name in ("prefill", "decode"))


def run(session: onnxruntime.InferenceSession, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a graph both takes and returns, the cache, is called input.NAME and output.NAME."""
    inputs = {each.name: arrays[each.name.removeprefix("input.")] for each in session.get_inputs()}
    names = [each.name.removeprefix("output.") for each in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def number(mask: np.ndarray) -> np.ndarray:
    """The positions of the real symbols, from 0, with padding on the left."""
    return (mask.cumsum(-1) - 1).clip(min=0)


def answer(question: str) -> str:
    ids = np.array([tokenizer(f"{question}⁇").input_ids])
    mask, written = np.ones_like(ids), []
    outputs = run(prefill, {"input_ids": ids, "attention_mask": mask, "position_ids": number(mask)})
    while len(written) < 32 and (id := int(outputs["logits"][0, -1].argmax())) != tokenizer.eos_token_id:
        written.append(id)
        mask = np.ones((1, mask.shape[1] + 1), dtype=mask.dtype)
        new = {"input_ids": np.array([[id]]), "attention_mask": mask, "position_ids": number(mask)[:, -1:]}
        outputs = run(decode, outputs | new)
    return tokenizer.decode(written)


# Batches and lengths other than those it was exported with: all questions at once, and a row of its own.
largest = 0.0
for texts in ([f"{question}⁇" for question, _ in pairs], [f"{pairs[0][0]}⁇"], [pairs[0][0][:2]]):
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    arrays["position_ids"] = number(arrays["attention_mask"])
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    is_real = arrays["attention_mask"].astype(bool)
    largest = max(largest, np.abs(run(prefill, arrays)["logits"] - expected)[is_real].max())
given = [answer(question) for question, _ in pairs]
expected = [each.text for each in model.answer([question for question, _ in pairs], tokenizer)]
right = sum(text == place for text, (_, place) in zip(given, pairs, strict=True))
same = sum(text == other for text, other in zip(given, expected, strict=True))
print(f"largest difference of a logit from torch's {largest:.1e}")
print(f"{same} of {len(pairs)} answers are torch's; {right} are right")
assert largest < 1e-4 and same == len(pairs)
