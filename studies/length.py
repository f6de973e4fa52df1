"""Train at 128 characters, read at up to 1,024: the loss by position, for every position embedding.

    python -m studies.length --output_dir runs/length

Each member is trained on the biographies of a fictional world, joined into one long text and cut into blocks of 128
characters, each as the text goes on (no span corruption: what comes next is asked everywhere). It is then read rows of
1,024 characters of other people's biographies, and its loss is averaged by position. Rotary is read once more with each
of transformers' scalings, set after training. Finished trainings are kept; the same command goes on where it stopped.
"""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments, default_data_collator

from data_scripts.synthetic_world import World
from data_scripts.text_files import (
    bad_input_in_one_line,
    check_at_least,
    check_is_folder_or_new,
    save_picture,
    written_whole,
)
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTForCausalLM, build_tokenizer
from studies.tables import chosen, show_table
from training import ArchitectureArguments, OneLineArgumentParser, bf16_is_fast, last_checkpoint, new_model, parse_into

BLOCK, LONGEST = 128, 1024
FACTOR = LONGEST / BLOCK
SCALINGS = {
    "linear": {"rope_type": "linear"},
    "dynamic": {"rope_type": "dynamic"},
    "yarn": {"rope_type": "yarn"},
    "llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


@dataclass
class LengthArguments:
    """How long to train, and whom."""

    output_dir: str = field(default="runs/length", metadata={"help": "Folder for figures, table and chart."})
    members: list[str] | None = field(default=None, metadata={"help": "position_embedding_type's (default: all)."})
    num_people: int = field(default=20_000, metadata={"help": "People whose biographies are trained on."})
    max_steps: int = field(default=1000, metadata={"help": "Steps a training, of 32 blocks."})
    num_rows: int = field(default=200, metadata={"help": "Long rows that are read."})
    hidden_size: int = field(default=256, metadata={"help": "Width of the models."})
    seed: int = field(default=42, metadata={"help": "Seed of the trainings."})


def blocks_of(text: str, length: int, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Cut a text into rows of `input_ids` and `labels`, (length,) each; what is left at the end is dropped."""
    ids = np.array(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    rows = ids[: len(ids) // length * length].reshape(-1, length)
    return Dataset.from_dict({"input_ids": rows, "labels": rows}).with_format("torch")


def biographies(people: range, world: World) -> str:
    """Their biographies, one after the other, a line each."""
    return "".join(document + "\n" for person in people for document in world.biographies(person))


def train(member: str, blocks: Dataset, tokenizer: PreTrainedTokenizerBase, arguments: LengthArguments, folder: Path):
    """Train one model on blocks, and save it; an interrupted training goes on."""
    architecture = ArchitectureArguments(
        position_embedding_type=member, hidden_size=arguments.hidden_size, block_size=BLOCK, dropout=0.0
    )
    training_args = TrainingArguments(
        output_dir=str(folder),
        max_steps=arguments.max_steps,
        per_device_train_batch_size=32,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        weight_decay=0.1,
        adam_beta2=0.95,
        bf16=bf16_is_fast(),
        use_cpu=not torch.accelerator.is_available(),
        logging_steps=20,
        save_steps=200,
        save_total_limit=1,
        seed=arguments.seed,
        report_to="none",
    )
    model = new_model(architecture, tokenizer, training_args)
    trainer = Trainer(model, training_args, train_dataset=blocks, data_collator=default_data_collator)
    checkpoint = last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(folder))


@torch.inference_mode()
def loss_by_position(model: PosGPTForCausalLM, rows: torch.LongTensor) -> np.ndarray:
    """(length - 1,) nats: the mean loss of what follows each position of `rows` (rows, length)."""
    total = torch.zeros(rows.shape[1] - 1)
    for part in tqdm(rows.split(8), desc="Reading", unit="batch", disable=None):
        logits = model(part.to(model.device)).logits[:, :-1].float().cpu()
        total += torch.nn.functional.cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none").sum(0)
    return (total / len(rows)).numpy()


def write_table(curves: dict[str, np.ndarray], folder: Path) -> None:
    """Write `table.md` and `chart.png`."""
    from matplotlib.figure import Figure

    bounds = [(0, 64), (64, 128), (128, 256), (256, 512), (512, 1023)]
    lines = [
        "| positions | " + " | ".join(f"{low + 1} to {high}" for low, high in bounds) + " |",
        "|---|" + "---|" * len(bounds),
    ]
    for name, curve in curves.items():
        cells = [f"{curve[low:high].mean():.3f}" if high <= len(curve) + 1 else "ends" for low, high in bounds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    show_table(lines, folder)

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    colours = {member: f"C{number}" for number, member in enumerate(POSITION_EMBEDDINGS)}
    dashes = dict(zip(SCALINGS, ["--", "-.", ":", (0, (6, 1, 1, 1, 1, 1))], strict=True))
    for name, curve in curves.items():
        starts = np.arange(0, len(curve), 16)
        widths = np.diff([*starts, len(curve)])
        binned = np.add.reduceat(curve, starts) / widths
        member, _, scaling = name.partition(", ")
        style = {"color": colours[member], "ls": dashes.get(scaling, "-"), "lw": 1.3}
        axes.plot(starts + widths / 2, binned, label=name, **style)
    axes.axvline(BLOCK, color="black", lw=0.8, ls=":")
    axes.set(
        xscale="log", xticks=[16, 32, 64, 128, 256, 512, 1024], xlabel="position",
        yscale="log", yticks=[0.25, 0.5, 1, 2, 4, 8], ylabel="loss (nats a character)",
    )  # fmt: skip
    axes.set_xticklabels(axes.get_xticks())
    axes.set_yticklabels(axes.get_yticks())
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"Trained at {BLOCK} characters (dotted), read at {LONGEST}")
    save_picture(figure, folder / "chart.png")


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(LengthArguments), sys.argv[1:])
    check_at_least(1, max_steps=arguments.max_steps, num_rows=arguments.num_rows, num_people=arguments.num_people)
    members = chosen(arguments.members, POSITION_EMBEDDINGS, "position_embedding_type")
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    world = World(max(1_000, 2 * arguments.num_people))
    text = biographies(range(arguments.num_people), world)
    tokenizer = build_tokenizer([text], BLOCK)
    blocks, unread = blocks_of(text, BLOCK, tokenizer), ""
    for person in range(arguments.num_people, world.num_people):
        if len(unread) >= (arguments.num_rows + 1) * LONGEST:
            break
        unread += biographies(range(person, person + 1), world)
    rows = blocks_of(unread, LONGEST, tokenizer)[: arguments.num_rows]["input_ids"]

    curves: dict[str, np.ndarray] = {}
    kept = {name: value for name, value in vars(arguments).items() if name not in ("output_dir", "members")}
    for member in members:
        folder = output_dir / member
        record = folder / "losses.json"
        before = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
        if before.get("arguments") != kept and folder.exists():
            shutil.rmtree(folder)
        if "curves" not in before or before["arguments"] != kept:
            with written_whole(record) as file:
                json.dump({"arguments": kept}, file)
            train(member, blocks, tokenizer, arguments, folder)
            before = {"arguments": kept, "curves": {}}
            for scaling in [None, *(SCALINGS if member == "rotary" else ())]:
                scaled = (
                    {"rope_parameters": SCALINGS[scaling] | {"rope_theta": 10000.0, "factor": FACTOR}}
                    if scaling
                    else {}
                )
                model = PosGPTForCausalLM.from_pretrained(folder, **scaled).eval()
                ends = member in ("learned", "concatenated")
                name = f"{member}, {scaling}" if scaling else member
                before["curves"][name] = loss_by_position(model, rows[:, :BLOCK] if ends else rows).tolist()
            with written_whole(record) as file:
                json.dump(before, file)
        curves |= {name: np.array(curve) for name, curve in before["curves"].items()}
        write_table(curves, output_dir)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
