"""Where a model looks when it is asked: a picture of every head of every layer.

    python -m studies attention_maps --models runs/windows runs/other --name "Eyolf Kleven" --output_dir runs/attention

For each model a PNG with a row of panels per layer and a panel per head. In a panel, each character of the question and of
the answer has a row that shows which characters it looks at. The name is between the upright lines; the horizontal line is
at the `⁇` after the question, where the answer begins. And a table: how much of the attention of that `⁇` is on the name.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import check_is_folder_or_new
from data_scripts.options import option, parse_options
from data_scripts.relations import read_relations
from modeling_posgpt import MASK_TOKEN
from posgpt.plots import ORANGE, make_figure, save_picture
from posgpt.training.saved_models import load_model
from studies.tables import write_table


@dataclass
class MapsArguments:
    """Whom to ask about."""

    models: list[str] = option("PosGPTs: folders, or names on the hub.")
    name: str = option("The person.")
    output_dir: str = option("Folder for the pictures and the table.", default="runs/attention")


@dataclass(frozen=True)
class Attention:
    """A model's answer to one question, and what each character looked at.

    Args:
        question, answer: The texts; between them is the `⁇` that asks.
        name: Where the name is in the question.
        positions: The model's position_embedding_type.
        weights: (layers, heads, length, length) of `question⁇answer`; rows add up to 1.
    """

    question: str
    answer: str
    name: slice
    positions: str
    weights: np.ndarray

    @property
    def text(self) -> str:
        """All characters, (length,)."""
        return f"{self.question}{MASK_TOKEN}{self.answer}"

    @property
    def on_name(self) -> np.ndarray:
        """(layers, heads): how much of the attention of the `⁇` that asks is on the name, 0 to 1."""
        return self.weights[:, :, len(self.question), self.name].sum(-1)


@torch.inference_mode()
def ask_model(model_name: str, name: str) -> Attention:
    """Ask a model about a name.

    Raises:
        BadInput: there is no such model, its characters do not look at each other, or the name is too long for it.
    """
    model, tokenizer = load_model(model_name, attn_implementation="eager")
    if model.config.bottleneck_size is not None:
        raise BadInput(f"{model_name}: reads through latents; its characters do not look at each other.")
    relation = read_relations(model.config.relations)[0]
    question, start = relation.ask(name), len(relation.split_wordings()[0].before)
    try:
        (answer,) = model.answer([question], tokenizer)
    except ValueError as error:
        raise BadInput(f"{model_name}: {error}") from None
    ids = tokenizer(f"{question}{MASK_TOKEN}{answer.text}", return_tensors="pt")["input_ids"].to(model.device)
    weights = torch.stack(model(ids, output_attentions=True).attentions)[:, 0].float().cpu().numpy()
    where = slice(start, start + len(name))
    return Attention(question, answer.text, where, model.config.position_embedding_type, weights)


def draw_attention(attention: Attention, title: str, path: Path) -> None:
    """Save the picture of one model's attention."""
    from matplotlib.colors import PowerNorm

    layers, heads = attention.weights.shape[:2]
    asking, name, text = len(attention.question), attention.name, attention.text
    figure, panels = make_figure(2.1 * heads + 0.7, 2.2 * layers, layers, heads)
    grid = np.reshape(panels, (layers, heads))
    for (layer, head), axes in np.ndenumerate(grid):
        # Attention over forty characters is mostly faint.
        image = axes.imshow(attention.weights[layer, head], cmap="Blues", norm=PowerNorm(0.5, 0, 1))
        axes.vlines([name.start - 0.5, name.stop - 0.5], asking - 0.5, name.start - 0.5, color=ORANGE, lw=0.8)
        axes.axhline(asking, color=ORANGE, lw=0.5, ls=":")
        axes.set(xticks=[], yticks=[])
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize="small")
        if layer == layers - 1:
            axes.set_xticks(range(len(text)), text, fontsize=4)
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}", fontsize="small")
            axes.set_yticks(range(len(text)), text, fontsize=4)
    figure.colorbar(image, ax=grid, label="attention", ticks=[0, 0.05, 0.2, 0.5, 1], aspect=60, pad=0.01)
    figure.suptitle(title)
    save_picture(figure, path, dpi=130)


def describe_attention(model_name: str, attention: Attention) -> dict[str, str]:
    """Return the cells of a model's row."""
    cells = {"model": model_name, "positions": attention.positions, "answer": attention.answer}
    for layer, heads in enumerate(attention.on_name, start=1):
        cells[f"layer {layer}"] = f"{heads.mean():.0%} (one head {heads.max():.0%})"
    return cells


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(MapsArguments, argv)
    output_dir, name = check_is_folder_or_new(arguments.output_dir), arguments.name
    folders, rows, lengths = [Path(model_name).name for model_name in arguments.models], [], set()
    for number, (model_name, folder) in enumerate(zip(arguments.models, folders, strict=True), start=1):
        attention = ask_model(model_name, name)
        picture = output_dir / (f"{folder}.png" if folders.count(folder) == 1 else f"{number}_{folder}.png")
        draw_attention(attention, f"{folder} ({attention.positions}): {attention.text}", picture)
        layers, heads = attention.weights.shape[:2]
        print(f"{picture}: {layers} layers of {heads} heads")
        rows.append(describe_attention(model_name, attention))
        # Models may ask in different words.
        lengths.add(len(attention.question) + len(MASK_TOKEN))
    shares = " or ".join(f"{len(name)} of {seen} characters: {len(name) / seen:.0%}" for seen in sorted(lengths))
    caption = f"Of the attention of the `{MASK_TOKEN}` that asks, the share on the name"
    write_table(output_dir, rows, f"{caption} ({shares} if all were looked at alike):")


if __name__ == "__main__":
    main()
