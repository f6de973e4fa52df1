"""Model folders and checkpoints: which to resume from, whether a folder may be written to, and loading a model."""

import json
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments

from data_scripts.errors import BadInput
from data_scripts.files import check_is_folder_or_new
from data_scripts.options import shorten_error
from data_scripts.relations import BIRTHPLACE
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM

WEIGHTS_FILE = "model.safetensors"


def find_last_checkpoint(output_dir: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder, None if there is none."""
    # Trainer writes its state last: a checkpoint without it is incomplete.
    whole = [file.parent for file in output_dir.glob("checkpoint-*[0-9]/trainer_state.json")]
    return max(whole, key=lambda folder: int(folder.name.split("-")[-1]), default=None)


def choose_checkpoint(training_args: TrainingArguments, overwrite_output_dir: bool) -> str | None:
    """Check that the output folder may be written to; return the checkpoint to resume from, None to start from scratch.

    Raises:
        BadInput: the folder holds a finished model or an unfinished run and no option says what to do with it, or there
            is no checkpoint to resume from.
    """
    output_dir, resume = check_is_folder_or_new(str(training_args.output_dir)), training_args.resume_from_checkpoint
    if (output_dir / WEIGHTS_FILE).exists() and not overwrite_output_dir:
        raise BadInput(
            f"{output_dir}: already holds a finished model; give another --output_dir, or --overwrite_output_dir to"
            " replace it."
        )
    if resume:
        checkpoint = find_last_checkpoint(output_dir) if str(resume).lower() in ("true", "last") else resume
        if checkpoint is None or not (Path(checkpoint) / "trainer_state.json").is_file():
            raise BadInput(
                f"{checkpoint or output_dir}: no checkpoint to resume from; give a folder named checkpoint-STEP, or"
                " leave --resume_from_checkpoint out to start from scratch."
            )
        return str(checkpoint)
    if any(output_dir.glob("checkpoint-*")) and not overwrite_output_dir:
        raise BadInput(
            f"{output_dir}: holds an unfinished run; --resume_from_checkpoint last continues it,"
            " --overwrite_output_dir starts from scratch."
        )
    return None


def load_model(name_or_path: str, **from_pretrained_arguments) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a saved PosGPT and its tokenizer from a folder or the hub.

    Raises:
        BadInput: there is no such model, or it is not a PosGPT.
    """
    folder = Path(name_or_path)
    if folder.exists():
        config_file = folder / "config.json"
        try:
            model_type = json.loads(config_file.read_text(encoding="utf-8")).get("model_type")
        except (OSError, ValueError, AttributeError):
            raise BadInput(
                f"{folder}: not a model folder (no readable config.json); give a folder that training wrote."
            ) from None
        if model_type != PosGPTConfig.model_type:
            raise BadInput(f"{folder}: holds a {model_type!r} model, not a PosGPT; give a folder that training wrote.")
    try:
        model = PosGPTForCausalLM.from_pretrained(name_or_path, **from_pretrained_arguments)
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError, StrictDataclassError) as error:
        reason = shorten_error(error.__cause__ or error)
        raise BadInput(f"{name_or_path}: no PosGPT could be loaded from there: {reason}") from None
    if model.config.relations is None:
        # Saved before models kept how they are asked.
        model.config.relations = BIRTHPLACE.to_config()
    return model, tokenizer
