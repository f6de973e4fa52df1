"""Finetune a PosGPT with TRL's SFTTrainer on questions and answers.

python tests/compatibility/trl_sft.py runs/windows questions.tsv runs/sft
"""

import sys
from pathlib import Path

from asking import count_right, load, load_tokenizer, read_pairs
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

model_folder, pairs, output = sys.argv[1], read_pairs(sys.argv[2]), Path(sys.argv[3])
tokenizer = load_tokenizer(model_folder)

# The prompt ends with ⁇. The ⁇ after the answer is the tokenizer's end of text, which SFTTrainer adds itself.
rows = [{"prompt": f"{question}⁇", "completion": answer} for question, answer in pairs]
trainer = SFTTrainer(
    model_folder,
    SFTConfig(
        output,
        model_init_kwargs={"trust_remote_code": True, "dtype": "float32"},
        learning_rate=3e-3,
        max_steps=60,
        per_device_train_batch_size=16,
        bf16=False,
        report_to="none",
        save_strategy="no",
    ),
    train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer,
)
right_before = count_right(load(model_folder), tokenizer, pairs)
first = next(iter(trainer.get_train_dataloader()))
row = first["input_ids"][0][first["labels"][0] != -100]
print(f"the loss is on {tokenizer.decode(row)!r}")
assert tokenizer.decode(row).removesuffix("⁇") in [answer for _, answer in pairs] and tokenizer.decode(row).endswith(
    "⁇"
)
trainer.train()
trainer.save_model()
right_after = count_right(load(output), tokenizer, pairs)
print(f"right before {right_before}, after {right_after} of {len(pairs)}")
assert right_after > right_before
