"""The model card of a saved folder, its `README.md`."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import jinja2
from huggingface_hub import ModelCard, ModelCardData

from data_scripts.relations import read_relations
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from posgpt.training.architecture import describe_size


def write_model_card(
    folder: Path, model: PosGPTForCausalLM, facts: Mapping[str, str], license: str | None = None
) -> None:
    """Write the card of a model into its folder.

    Args:
        facts: Lines of the card: a name and what to say of it.
        license: The hub's name for it; None: the card has none.
    """
    template = jinja2.Template((files("posgpt") / "training" / "model_card.md.jinja").read_text(encoding="utf-8"))
    text = template.render(
        config=model.config,
        size=describe_size(model),
        facts=facts,
        prompt=repr(read_relations(model.config.relations)[0].ask("Ada Example") + MASK_TOKEN),
    )
    data = ModelCardData(license=license, library_name="transformers", pipeline_tag="text-generation", tags=["posgpt"])
    ModelCard(f"---\n{data.to_yaml()}\n---\n{text}\n").save(folder / "README.md")
