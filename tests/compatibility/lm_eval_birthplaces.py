"""Ask a PosGPT the birthplace questions with lm-evaluation-harness, and write down its answers.

In a folder with birth_dev.tsv:
python tests/compatibility/lm_eval_birthplaces.py runs/windows answers.txt
"""

import sys
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

model_folder, answers_file = sys.argv[1], Path(sys.argv[2])
results = lm_eval.simple_evaluate(
    model="hf",
    model_args={"pretrained": model_folder, "trust_remote_code": True, "dtype": "float32"},
    tasks=["birthplaces"],
    # `lm_eval --include_path` does the same; without the tasks of the library it starts faster.
    task_manager=TaskManager(include_path=str(Path(__file__).parent / "tasks"), include_defaults=False),
    batch_size=32,
    device="cpu",
    bootstrap_iters=0,
)
samples = sorted(results["samples"]["birthplaces"], key=lambda sample: sample["doc_id"])
answers_file.write_text("".join(f"{sample['filtered_resps'][0]}\n" for sample in samples), encoding="utf-8")
print(f"exact match {results['results']['birthplaces']['exact_match,none']:.1%} of {len(samples)}")
