"""Where a model looks when it is asked: a picture of every head of every layer.

    python -m studies.attention_maps --models runs/windows runs/other --name "Eyolf Kleven" --output_dir runs/attention

For each model a PNG: a row of panels for each layer, a panel for each head; in a panel, each character of the question (and
of the answer) down, what it looks at across; the name stands between the upright lines, the `⁇` that asks at the level
one. And a table: how much of the attention of that `⁇` falls on the name.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from data_scripts.text_files import BadInput, bad_input_in_one_line, check_is_folder_or_new, save_picture
from modeling_posgpt import MASK_TOKEN, QUESTION_END, QUESTION_START, PosGPTForCausalLM
from studies.tables import show_table
from training import OneLineArgumentParser, load_model, parse_into


@dataclass
class MapsArguments:
    """Whom to ask about."""

    models: list[str] = field(metadata={"help": "PosGPTs: folders, or names on the hub."})
    name: str = field(metadata={"help": "The person."})
    output_dir: str = field(default="runs/attention", metadata={"help": "Folder for the pictures and the table."})


@torch.inference_mode()
def attention_of(model: PosGPTForCausalLM, tokenizer, text: str) -> np.ndarray:
    """(layers, heads, length, length): what each character of `text` looks at; rows add up to 1."""
    ids = tokenizer(text, return_tensors="pt")["input_ids"].to(model.device)
    return torch.stack(model(ids, output_attentions=True).attentions)[:, 0].float().cpu().numpy()


def draw(weights: np.ndarray, text: str, name: slice, asking: int, title: str, path: Path) -> None:
    """Save the picture of `attention_of`, with lines around the characters `name` and at the character `asking`."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    layers, heads = weights.shape[:2]
    figure = Figure(figsize=(2.1 * heads + 0.7, 2.2 * layers), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    for (layer, head), axes in np.ndenumerate(grid):
        # Attention over forty characters is mostly faint.
        image = axes.imshow(weights[layer, head], cmap="Blues", norm=PowerNorm(0.5, 0, 1))
        axes.vlines([name.start - 0.5, name.stop - 0.5], asking - 0.5, name.start - 0.5, color="#e07b39", lw=0.8)
        axes.axhline(asking, color="#e07b39", lw=0.5, ls=":")
        axes.set_xticks([]), axes.set_yticks([])
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize="small")
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}", fontsize="small")
    for axes in grid[-1]:
        axes.set_xticks(range(len(text)), text, fontsize=4)
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(text)), text, fontsize=4)
    figure.colorbar(image, ax=grid, label="attention", ticks=[0, 0.05, 0.2, 0.5, 1], aspect=60, pad=0.01)
    figure.suptitle(title)
    save_picture(figure, path, dpi=130)


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(MapsArguments), sys.argv[1:])
    output_dir = check_is_folder_or_new(arguments.output_dir)
    question = f"{QUESTION_START}{arguments.name}{QUESTION_END}"
    lines, names = [], [Path(model_name).name for model_name in arguments.models]
    for number, (model_name, name) in enumerate(zip(arguments.models, names, strict=True), start=1):
        model, tokenizer = load_model(model_name, attn_implementation="eager")
        if model.config.bottleneck_size is not None:
            raise BadInput(f"{model_name}: reads through latents; its characters do not look at each other.")
        try:
            (answer,) = model.answer([question], tokenizer)
        except ValueError as error:
            raise BadInput(f"{model_name}: {error}") from None
        text = f"{question}{MASK_TOKEN}{answer.text}"
        weights = attention_of(model, tokenizer, text)
        layers, heads = weights.shape[:2]
        kind = model.config.position_embedding_type
        output_dir.mkdir(parents=True, exist_ok=True)
        picture = output_dir / (f"{name}.png" if names.count(name) == 1 else f"{number}_{name}.png")
        asked = slice(len(QUESTION_START), len(QUESTION_START) + len(arguments.name))
        draw(weights, text, asked, len(question), f"{name} ({kind}): {text}", picture)
        on_name = weights[:, :, len(question), asked].sum(-1)
        lines = lines or [
            "| model | positions | answer | " + " | ".join(f"layer {layer + 1}" for layer in range(layers)) + " |",
            "|---|---|---|" + "---|" * layers,
        ]
        cells = " | ".join(f"{row.mean():.0%} (one head {row.max():.0%})" for row in on_name)
        lines.append(f"| {model_name} | {kind} | {answer.text} | {cells} |")
        print(f"{picture}: {layers} layers of {heads} heads")
    seen, of_name = len(question) + 1, len(arguments.name)
    caption = f"Of the attention of the `{MASK_TOKEN}` that asks, the share on the name"
    alike = f"{of_name} of {seen} characters: {of_name / seen:.0%} if all were looked at alike"
    show_table([f"{caption} ({alike}):", "", *lines], output_dir)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
