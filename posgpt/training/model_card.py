"""The model card of a saved folder, its `README.md`."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from data_scripts.files import CARD_FILE
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
    card = ModelCard.from_template(
        ModelCardData(license=license, library_name="transformers", pipeline_tag="text-generation", tags=["posgpt"]),
        template_str=(files("posgpt") / "training" / "model_card.md.jinja").read_text(encoding="utf-8"),
        config=model.config,
        size=describe_size(model),
        facts=facts,
        prompt=repr(read_relations(model.config.relations)[0].ask("Ada Example") + MASK_TOKEN),
    )
    card.save(folder / CARD_FILE)
