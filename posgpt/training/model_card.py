"""The model card of a saved folder, its `README.md`."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData
from transformers import TrainerState

from data_scripts.files import CARD_FILE
from data_scripts.relations import read_relations
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from posgpt.training.architecture import describe_size
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.run_record import find_last_figure, format_files


def write_model_card(
    folder: Path, model: PosGPTForCausalLM, facts: Mapping[str, str], license: str | None = None
) -> None:
    """Write the card of a model into its folder; `facts` are lines of it, `license` the hub's name for one."""
    card = ModelCard.from_template(
        ModelCardData(license=license, library_name="transformers", pipeline_tag="text-generation", tags=["posgpt"]),
        template_str=(files("posgpt") / "training" / "model_card.md.jinja").read_text(encoding="utf-8"),
        config=model.config,
        size=describe_size(model),
        facts=facts,
        prompt=repr(read_relations(model.config.relations)[0].ask("Ada Example") + MASK_TOKEN),
    )
    card.save(folder / CARD_FILE)


def describe_training(state: TrainerState, args: PosGPTTrainingArguments, best_step: int | None) -> dict[str, str]:
    """Return the card's lines on a training, after which the model has the weights of `best_step`, or of the last one."""
    read = f", {state.num_input_tokens_seen:,} characters" if state.num_input_tokens_seen else ""
    facts = {
        "Training": f"{state.global_step} steps ({state.epoch or 0:.4g} epochs{read}), peak learning rate"
        f" {args.learning_rate:g}, seed {args.seed}"
    }
    if best_step:
        facts["Weights"] = f"those of step {best_step}, the best by {args.metric_for_best_model}"
    if (loss := find_last_figure(state.log_history, "loss", best_step)) is not None:
        facts["Training loss"] = f"{loss:.4f} nats per character, the last one logged"
    if (accuracy := find_last_figure(state.log_history, "eval_accuracy", best_step)) is not None:
        facts["Validation accuracy"] = f"{accuracy:.1%} (exact match)"
    if args.record:
        files = [format_files(files) for files in args.record["data"].values()]
        facts["Data"] = ", ".join(dict.fromkeys(files))
        facts["Software"] = ", ".join(" ".join(each) for each in args.record["versions"].items())
    return facts
