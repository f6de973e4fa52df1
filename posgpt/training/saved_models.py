"""Load a saved PosGPT without running or unpickling anything in its folder, and say in one line what is wrong with it."""

import re
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from shutil import copymode
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase
from transformers.utils import cached_file

from data_scripts.errors import BadInput, reraise_as_bad_input
from data_scripts.files import check_is_file, load_json
from data_scripts.relations import BIRTHPLACE
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from modeling_posgpt.composition import list_names
from modeling_posgpt.configuration_posgpt import load_task
from modeling_posgpt.position_encoding import read_code
from posgpt.training.checkpoints import WEIGHTS_FILE, find_last_checkpoint
from posgpt.training.hardware import avoid_cudnn_attention

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"
_WRAPPERS = re.compile(r"^(_orig_mod\.|module\.)+")


def refuse_model(
    where: str | Path, fix: str = "copy the model again, or give another one."
) -> AbstractContextManager[None]:
    """Say in one line what is wrong with a model's folder or a file in it, whose readers raise exceptions of many types."""
    kinds = (OSError, SafetensorError, StrictDataclassError, ValueError, TypeError, LookupError, RuntimeError)
    return reraise_as_bad_input(f"{where}: no PosGPT could be loaded from there", fix, ImportError, *kinds)


def find_model_file(name_or_path: str, name: str) -> Path:
    """Return where a file of a model lies, in its folder or in the cache of the hub; raise BadInput where there is none."""
    folder, fix = Path(name_or_path), "give a folder that training wrote, or its name on the hub."
    if not folder.exists() and folder.parent.name and folder.parent.is_dir():
        # The hub would be asked for half a minute where there is no network.
        raise BadInput(f"{folder}: no such folder in {folder.parent}; give a folder that training wrote.")
    with refuse_model(name_or_path, fix if folder.exists() else f"there is no such folder, either; {fix}"):
        if folder.exists() and not (folder / name).is_file():
            if checkpoint := find_last_checkpoint(folder):
                where = f"--resume_from_checkpoint last continues it, or take {checkpoint}"
                raise ValueError(f"training has not ended there; {where}")
            raise ValueError(f"not a model folder: it has no {name}")
        return Path(str(cached_file(name_or_path, name)))


def load_config(name_or_path: str, changes: dict[str, Any]) -> PosGPTConfig:
    """Load the configuration of a saved PosGPT, with `changes` to its fields.

    Only PosGPT's own fields are read: others may name code, other models or quantizations.
    """
    file = find_model_file(name_or_path, CONFIG_FILE)
    content = load_json(file, "configuration of a model")
    if (kind := content.get("model_type")) != PosGPTConfig.model_type:
        raise BadInput(f"{name_or_path}: holds a {kind!r} model, not a PosGPT; give a folder that training wrote.")
    positions = content.get("position_embedding_type")
    names = list_names(positions)
    settings = {name for each in names if each in POSITION_EMBEDDINGS for name in POSITION_EMBEDDINGS[each].settings}
    if positions is not None and (unknown := [name for name in names if name not in POSITION_EMBEDDINGS]):
        raise BadInput(
            f"{file}: positions {unknown[0]!r} are not PosGPT's own; add --import FILE.py, which registers them, or the one in"
            " its folder."
        )
    own = {name: value for name, value in content.items() if name in settings.union(PosGPTConfig.__annotations__)}
    with refuse_model(file):
        config = PosGPTConfig(**own | changes)
        # PosGPT's own may be of an earlier version, and do the same.
        for encoding in (
            each for each in config.position_encodings if not each.__module__.startswith("modeling_posgpt.")
        ):
            module, code = read_code(encoding)
            saved = file.with_name(f"{module}.py")
            if saved.is_file() and saved.read_text("utf-8") != code:
                raise BadInput(
                    f"{saved}: the model was trained with it, and what is imported differs; --import {saved}."
                )
        return config


def load_weights(file: Path, config: PosGPTConfig) -> dict[str, torch.Tensor]:
    """Load the weights of a PosGPT; raise BadInput where they are damaged, another model's or not finite."""
    check_is_file(file, "weights of a model")
    with refuse_model(file):
        # Copies: the file would stay open, and Windows does not replace an open file. torch.compile and DataParallel put a
        # prefix before the names.
        weights = {_WRAPPERS.sub("", name): tensor.clone() for name, tensor in load_file(file).items()}
        # Nothing of the configured sizes is allocated.
        with torch.device("meta"):
            model = PosGPTForCausalLM(config)
        missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
        if other := {*missing, *unexpected} - set(model._tied_weights_keys if config.tie_word_embeddings else ()):
            raise ValueError(f"{CONFIG_FILE} is of another model, as {min(other)!r} shows")
        if infinite := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
            raise ValueError(f"{infinite[0]} has numbers that are not finite")
    return weights


def load_tokenizer(file: Path, config: PosGPTConfig) -> PreTrainedTokenizerBase:
    """Build the tokenizer of a saved PosGPT from its vocabulary and what `add_tokens` added; nothing else in the file is used."""
    content = load_json(file, "tokenizer of a model")
    with refuse_model(file):
        added = {each["content"]: each["id"] for each in content.get("added_tokens", ())}
        vocabulary = content["model"]["vocab"] | added
        symbols = sorted(vocabulary, key=vocabulary.__getitem__)
        tokenizer = build_tokenizer((), config.max_position_embeddings, symbols)
        if set(map(len, symbols)) != {1} or tokenizer.get_vocab() != vocabulary or len(symbols) != config.vocab_size:
            wanted = f"{config.vocab_size} symbols: □, ⁇ and one for each character"
            raise ValueError(f"not the vocabulary of the model, {wanted}")
    return tokenizer


def load_model(name_or_path: str, **settings: Any) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a saved PosGPT and its tokenizer from a folder or the hub; cuDNN's attention is not used from then on.

    Args:
        settings: Fields of the configuration to change, and arguments of `from_pretrained`, such as `dtype`.
    """
    avoid_cudnn_attention()
    changes = {name: settings.pop(name) for name in list(settings) if name in PosGPTConfig.__annotations__}
    config = load_config(name_or_path, changes)
    if config.relations is None:
        with refuse_model(name_or_path):
            # Models saved before 0.3 say nothing of how they are asked.
            config.relations = load_task(name_or_path, {}) or BIRTHPLACE.to_config()
    weights = load_weights(find_model_file(name_or_path, WEIGHTS_FILE), config)
    tokenizer = load_tokenizer(find_model_file(name_or_path, TOKENIZER_FILE), config)
    with refuse_model(name_or_path):
        return PosGPTForCausalLM.from_pretrained(None, config=config, state_dict=weights, **settings), tokenizer


def check_is_causal(name: str, model: PosGPTForCausalLM) -> None:
    """Check that a model, which is called `name`, can be asked: that it does not see what it is to write."""
    if not model.config.is_causal:
        raise BadInput(f"{name}: a model with is_causal=False sees what follows, and cannot be asked; give another.")


def save_pretrained(
    model: Any, weights: dict[str, torch.Tensor] | None, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> PosGPTForCausalLM:
    """Save a model that is in training as it is to be loaded, and return it without weights.

    If `weights` is None, they are saved in shards elsewhere, and nothing is saved here.
    """
    # Trainer turned the cache off, and FSDP2 gave the model a class of its own, without code to save.
    config = deepcopy(model.config)
    config.use_cache = True
    with torch.device("meta"):
        saved = PosGPTForCausalLM(config).to(model.dtype)
    if weights is not None:
        saved.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        # safetensors makes files that nobody else may read.
        for file in folder.glob("*.safetensors"):
            copymode(folder / CONFIG_FILE, file)
    return saved
