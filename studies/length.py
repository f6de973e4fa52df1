"""Train at 128 characters, read at up to 1,024: the loss by position, for every position embedding.

    posgpt study length --output_dir runs/length

Each member is trained on the biographies of a fictional world, joined into one long text and cut into rows of 128
characters, to predict every next character (no span corruption). It then reads rows of 1,024 characters of other people's
biographies, and its loss is averaged by position. Rotary reads them once more with each of transformers' scalings, set
after training. Finished runs are kept; the same command resumes where it stopped.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from accelerate import PartialState
from datasets.fingerprint import Hasher
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, Trainer, default_data_collator

from data_scripts.files import check_is_folder_or_new
from data_scripts.options import Range, option, parse_options
from data_scripts.synthetic_world import World
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTForCausalLM, build_tokenizer
from posgpt.imports import describe_imports
from posgpt.plots import make_figure, save_picture
from posgpt.tables import write_table
from posgpt.training.architecture import ArchitectureArguments, build_config, build_model
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.checkpoints import find_last_checkpoint
from studies.training_runs import Record, keep_result

TRAINED_LENGTH, LONGEST = 128, 1024
# Of positions, from 0: where the columns of the table begin and end.
BOUNDS = [(0, 64), (64, 128), (128, 256), (256, 512), (512, 1023)]
# transformers' `rope_type`, with the settings that it has of its own.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, dict[str, float]] = {"linear": {}, "dynamic": {}, "yarn": {}, "llama3": LLAMA3}


@dataclass
class LengthArguments:
    """What to train, and for how long."""

    output_dir: str = option("Folder for figures, table and chart.", default="runs/length")
    members: list[str] | None = option(
        "Which position_embedding_type to train with (default: all).", default=None, choices=list(POSITION_EMBEDDINGS)
    )
    num_people: Annotated[int, Range(100, 400_000)] = option(
        "How many people's biographies are trained on.", default=20_000
    )
    max_steps: Annotated[int, Range(1)] = option(
        f"Optimizer steps per run, of 32 rows of {TRAINED_LENGTH} characters.", default=1000
    )
    num_rows: Annotated[int, Range(1, 25_000)] = option("How many long rows are read.", default=200)
    hidden_size: Annotated[int, Range(1)] = option("Width of the models.", default=256)
    seed: Annotated[int, Range(0)] = option("Seed of the training runs.", default=42)


def make_texts(arguments: LengthArguments) -> tuple[str, str]:
    """Return the texts of a fictional world that are trained on, and of other people, for the long rows."""
    # More than enough: a biography has about 90 characters.
    others = max(500, arguments.num_people, 20 * arguments.num_rows)
    world = World(max(1_000, arguments.num_people + others))
    documents = ("".join(f"{text}\n" for text in world.biographies(person)) for person in range(world.num_people))
    text, unread = "".join(islice(documents, arguments.num_people)), ""
    while len(unread) < (arguments.num_rows + 1) * LONGEST:
        unread += next(documents)
    return text, unread


def list_scalings(member: str) -> dict[str, dict[str, Any]]:
    """Return changes of the configuration with which a trained member is read, by what the curves are called."""
    changes: dict[str, dict[str, Any]] = {member: {}}
    for name, settings in SCALINGS.items() if "rope_parameters" in POSITION_EMBEDDINGS[member].settings else []:
        scaling = {"rope_type": name, "rope_theta": 10000.0, "factor": LONGEST / TRAINED_LENGTH}
        changes[f"{member}, {name}"] = {"rope_parameters": scaling | settings}
    return changes


def make_architecture(member: str, arguments: LengthArguments, **settings: Any) -> Any:
    """Return the options of a member's model."""
    size, length = arguments.hidden_size, TRAINED_LENGTH
    return ArchitectureArguments(
        position_embedding_type=member, hidden_size=size, block_size=length, dropout=0.0, **settings
    )


def train_member(
    member: str, rows: torch.Tensor, tokenizer: PreTrainedTokenizerBase, arguments: LengthArguments, folder: Path
) -> None:
    """Train one model on rows (rows, TRAINED_LENGTH) and save it; an interrupted training is resumed."""
    training_args = PosGPTTrainingArguments(
        output_dir=str(folder),
        max_steps=arguments.max_steps,
        per_device_train_batch_size=32,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        weight_decay=0.1,
        adam_beta2=0.95,
        logging_steps=20,
        save_steps=200,
        save_total_limit=1,
        seed=arguments.seed,
        report_to="none",
    )
    model = build_model(make_architecture(member, arguments), tokenizer, training_args)
    dataset: Any = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, training_args, train_dataset=dataset, data_collator=default_data_collator)
    checkpoint = find_last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(folder))


@torch.inference_mode()
def compute_loss_by_position(model: PosGPTForCausalLM, rows: torch.Tensor) -> np.ndarray:
    """Compute (length - 1,) nats: the mean loss of what follows each position of `rows` (rows, length)."""
    total = torch.zeros(rows.shape[1] - 1)
    for part in tqdm(rows.split(8), desc="Reading", unit="batch", disable=None):
        logits = model(part.to(model.device)).logits[:, :-1].float().cpu()
        total += torch.nn.functional.cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none").sum(0)
    return (total / len(rows)).numpy()


def compute_curves(member: str, folder: Path, rows: torch.Tensor) -> dict[str, list[float]]:
    """Compute a trained member's loss by position, as far as it has positions; for rotary with each scaling, too."""
    positions = POSITION_EMBEDDINGS[member]
    rows = rows[:, :TRAINED_LENGTH] if positions.is_bounded else rows
    curves = {}
    for name, change in list_scalings(member).items():
        model = PosGPTForCausalLM.from_pretrained(folder, **change).to(PartialState().device).eval()
        curves[name] = compute_loss_by_position(model, rows).tolist()
    return curves


def draw_curves(curves: dict[str, np.ndarray], path: Path) -> None:
    """Save a PNG: the loss over the position, both logarithmic, averaged over 16 positions each."""
    figure, axes = make_figure(10, 5)
    colors = {member: f"C{number}" for number, member in enumerate(POSITION_EMBEDDINGS)}
    dashes = dict(zip(SCALINGS, ["--", "-.", ":", (0, (6, 1, 1, 1, 1, 1))], strict=True))
    for name, curve in curves.items():
        means = [part.mean() for part in np.array_split(curve, (len(curve) + 1) // 16)]
        member, _, scaling = name.partition(", ")
        middles = 16 * np.arange(len(means)) + 8
        axes.plot(middles, means, label=name, color=colors[member], ls=dashes.get(scaling, "-"), lw=1.3)
    axes.axvline(TRAINED_LENGTH, color="black", lw=0.8, ls=":")
    axes.set(xlabel="position", xscale="log", ylabel="loss (nats per character)", yscale="log")
    axes.set(xticks=[16, 32, 64, 128, 256, 512, 1024], yticks=[0.25, 0.5, 1, 2, 4, 8])
    axes.minorticks_off()
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    title = f"Trained at {TRAINED_LENGTH} characters (dotted), read at {LONGEST}"
    ends = {name: curve[BOUNDS[-1][0] :].mean() for name, curve in curves.items() if len(curve) + 1 >= LONGEST}
    axes.set_title(f"{title}: {min(ends, key=ends.__getitem__)} loses the least at the end" if ends else title)
    save_picture(figure, path)


def describe_curve(name: str, curve: np.ndarray) -> dict[str, str]:
    """Return the cells of a row: the mean loss between BOUNDS."""
    cells = {"positions": name}
    for low, high in BOUNDS:
        cells[f"{low + 1} to {high}"] = f"{curve[low:high].mean():.3f}" if high <= len(curve) + 1 else "ends"
    return cells


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(LengthArguments, argv)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    members = arguments.members or [name for name in POSITION_EMBEDDINGS if name != "randomized"]
    for each in members:
        for settings in list_scalings(each).values():
            build_config(make_architecture(each, arguments, **settings))
    text, unread = make_texts(arguments)
    tokenizer = build_tokenizer([text], TRAINED_LENGTH)
    ids, unread_ids = (
        torch.tensor(tokenizer(each, add_special_tokens=False, verbose=False)["input_ids"]) for each in (text, unread)
    )
    rows = ids[: len(ids) // TRAINED_LENGTH * TRAINED_LENGTH].view(-1, TRAINED_LENGTH)
    long_rows = unread_ids[: arguments.num_rows * LONGEST].view(-1, LONGEST)
    key = {name: value for name, value in vars(arguments).items() if name not in ("output_dir", "members")}
    key |= {"texts": Hasher.hash([text, unread])}
    curves: dict[str, np.ndarray] = {}
    for member in members:
        folder = output_dir / member

        def measure(member: str = member, folder: Path = folder) -> Record:
            train_member(member, rows, tokenizer, arguments, folder)
            return {"curves": compute_curves(member, folder, long_rows)}

        own = key | describe_imports([member])
        kept = keep_result(folder / "losses.json", own, measure, folder)["curves"]
        curves |= {name: np.array(curve) for name, curve in kept.items()}
        write_table(output_dir, [describe_curve(*item) for item in curves.items()])
        draw_curves(curves, output_dir / "chart.png")
