"""Finetune a PosGPT with PEFT's LoRA, save the adapter, load it again, and merge it into an ordinary model folder.

python tests/compatibility/peft_lora.py runs/windows questions.tsv runs/lora
"""

import sys
from pathlib import Path

import torch
from asking import count_right, load, load_tokenizer, read_pairs
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments, set_seed

model_folder, pairs, output = sys.argv[1], read_pairs(sys.argv[2]), Path(sys.argv[3])
set_seed(0)
tokenizer = load_tokenizer(model_folder)


def encode(question: str, answer: str) -> dict[str, list[int]]:
    """`QUESTION⁇ANSWER⁇`, with loss on the answer and the ⁇ after it."""
    prompt, rest = tokenizer(f"{question}⁇").input_ids, tokenizer(f"{answer}⁇").input_ids
    return {"input_ids": prompt + rest, "labels": [-100] * len(prompt) + rest}


# Every linear layer of attention and MLP gets an adapter; the output layer stays as it is.
base = load(model_folder)
right_before = count_right(base, tokenizer, pairs)
model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
model.print_trainable_parameters()
trainer = Trainer(
    model,
    TrainingArguments(
        output, learning_rate=1e-2, max_steps=60, per_device_train_batch_size=16, report_to="none", save_strategy="no"
    ),
    train_dataset=[encode(*pair) for pair in pairs],
    data_collator=DataCollatorForSeq2Seq(tokenizer),
)
trainer.train()
unadapted = [name for name, weight in model.named_parameters() if "lora_B" in name and not weight.any()]
assert not unadapted, f"these adapters have learned nothing: {unadapted}"

# The adapter's folder holds the adapter alone and names the model it belongs to.
model.save_pretrained(output / "adapter")
adapted = load(output / "adapter", AutoPeftModelForCausalLM)
right_after = count_right(adapted, tokenizer, pairs)
inputs = tokenizer([f"{question}⁇" for question, _ in pairs], padding=True, return_tensors="pt")
with torch.no_grad():
    expected = adapted(**inputs).logits

# The merged model is a folder like any other.
adapted.merge_and_unload().save_pretrained(output / "merged")
tokenizer.save_pretrained(output / "merged")
merged = load(output / "merged")
with torch.no_grad():
    difference = (merged(**inputs).logits - expected).abs().max().item()
print(f"right before {right_before}, after {right_after} of {len(pairs)}")
print(f"largest difference of a logit after merging {difference:.1e}, of logits up to {expected.abs().max():.1f}")
assert right_after > right_before and count_right(merged, tokenizer, pairs) == right_after
assert difference < 1e-3
