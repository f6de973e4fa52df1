"""Finetune a PosGPT with TRL's SFTTrainer on questions and answers.

python tests/compatibility/trl_sft.py runs/windows questions.tsv runs/sft
"""

import sys
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

model_folder, questions_file, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
pairs = [line.split("\t") for line in questions_file.read_text(encoding="utf-8").splitlines()]
questions, answers = zip(*pairs, strict=True)
tokenizer = AutoTokenizer.from_pretrained(model_folder, trust_remote_code=True)


def count_right(folder) -> int:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    given = [answer.text for answer in model.answer(questions, tokenizer)]
    return sum(text == answer for text, answer in zip(given, answers, strict=True))


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
right_before = count_right(model_folder)
first = next(iter(trainer.get_train_dataloader()))
row = first["input_ids"][0][first["labels"][0] != -100]
print(f"the loss is on {tokenizer.decode(row)!r}")
assert tokenizer.decode(row).removesuffix("⁇") in answers and tokenizer.decode(row).endswith("⁇")
trainer.train()
trainer.save_model()
right_after = count_right(output)
print(f"right before {right_before}, after {right_after} of {len(questions)}")
assert right_after > right_before
