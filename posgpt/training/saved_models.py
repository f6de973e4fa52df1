"""Load a saved PosGPT without running or unpickling anything in its folder, and say in one line what is wrong with it."""

import re
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase
from transformers.utils import cached_file

from data_scripts.errors import BadInput
from data_scripts.files import check_is_file, load_json
from data_scripts.options import shorten_error
from data_scripts.relations import BIRTHPLACE
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from modeling_posgpt.configuration_posgpt import load_task
from posgpt.training.checkpoints import WEIGHTS_FILE, find_last_checkpoint
from posgpt.training.hardware import avoid_cudnn_attention

CONFIG_FILE, TOKENIZER_FILE = "config.json", "tokenizer.json"
_WRAPPERS = re.compile(r"^(_orig_mod\.|module\.)+")


def _refuse(where: str | Path, reason: str, fix: str = "copy the model again, or give another one.") -> BadInput:
    return BadInput(f"{where}: no PosGPT could be loaded from there: {reason}; {fix}")


def find_model_file(name_or_path: str, name: str) -> Path:
    """Return where a file of a model lies: in its folder, or in the cache of the hub.

    Raises:
        BadInput: there is no such model, or it has no such file.
    """
    folder = Path(name_or_path)
    if not folder.exists() and folder.parent.name and folder.parent.is_dir():
        # The hub would be asked for half a minute where there is no network.
        raise BadInput(f"{folder}: no such folder in {folder.parent}; give a folder that training wrote.")
    try:
        return Path(str(cached_file(name_or_path, name)))
    except (OSError, ValueError) as error:
        fix = "give a folder that training wrote, or its name on the hub."
        reason = shorten_error(error.__cause__ or error).rstrip(".")
        if not Path(name_or_path).exists():
            reason = f"there is no such folder, and from the hub: {reason}"
        raise _refuse(name_or_path, reason, fix) from None


def load_config(name_or_path: str, changes: dict[str, Any]) -> PosGPTConfig:
    """Load the configuration of a saved PosGPT, with `changes` to its fields.

    Only PosGPT's own fields are read: others may name code, other models or quantizations.

    Raises:
        BadInput: there is no such model, it is no PosGPT, or its sizes and choices are not compatible.
    """
    if Path(name_or_path).exists() and not (Path(name_or_path) / CONFIG_FILE).is_file():
        if checkpoint := find_last_checkpoint(Path(name_or_path)):
            raise BadInput(
                f"{name_or_path}: training has not ended there; continue it with --resume_from_checkpoint last, or give its last"
                f" checkpoint, {checkpoint}."
            )
        raise BadInput(
            f"{name_or_path}: not a model folder (no readable {CONFIG_FILE}); give a folder that training wrote."
        )
    file = find_model_file(name_or_path, CONFIG_FILE)
    content = load_json(file, "configuration of a model")
    if content.get("model_type") != PosGPTConfig.model_type:
        raise BadInput(
            f"{name_or_path}: holds a {content.get('model_type')!r} model, not a PosGPT; give a folder that training wrote."
        )
    own = {name: value for name, value in content.items() if name in PosGPTConfig.__annotations__}
    try:
        return PosGPTConfig(**own | changes)
    except (StrictDataclassError, ValueError, KeyError) as error:
        raise _refuse(file, shorten_error(error.__cause__ or error)) from None


def load_weights(file: Path, config: PosGPTConfig) -> dict[str, torch.Tensor]:
    """Load the weights of a PosGPT.

    Raises:
        BadInput: the file is damaged or a pointer to another one, has other tensors than a model of this configuration, or
            numbers that are not finite.
    """
    check_is_file(file, "weights of a model")
    try:
        # Copies: the file would stay open, and Windows does not replace an open file. torch.compile and DataParallel put a
        # prefix before the names.
        weights = {_WRAPPERS.sub("", name): tensor.clone() for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise _refuse(file, shorten_error(error)) from None
    norm, other_sizes = weights.get("model.norm.weight"), f"{CONFIG_FILE} is of a model with other sizes"
    # Checked before anything of the configured sizes is allocated.
    if norm is None or norm.shape != (config.hidden_size,) or config.num_hidden_layers > len(weights):
        raise _refuse(file, other_sizes)
    try:
        with torch.device("meta"):
            model = PosGPTForCausalLM(config)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise _refuse(file.with_name(CONFIG_FILE), shorten_error(error)) from None
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        wanted = {
            name: shape for name, shape in wanted.items() if name in weights or name not in model._tied_weights_keys
        }
    for name in wanted.keys() | weights.keys():
        if name not in weights or name not in wanted or weights[name].shape != wanted[name]:
            raise _refuse(file, f"{other_sizes}, as {name[:60]!r} shows")
        if not weights[name].is_floating_point() or not weights[name].float().isfinite().all():
            raise _refuse(file, f"{name} has numbers that are not finite")
    return weights


def load_pickle(file: Path) -> Any:
    """Unpickle what `torch.save` wrote, tensors and plain values, without running code that the file may hold.

    Raises:
        Exception: a damaged file can make torch raise almost any exception.
        ValueError: there is a tensor that is sparse, or without numbers of its own for all its entries.
    """
    with warnings.catch_warnings(action="ignore"):
        content = torch.load(file, map_location="cpu", weights_only=True)
    left, seen = [content], set()
    while left:
        entry = left.pop()
        if id(entry) in seen:
            continue
        seen.add(id(entry))
        if isinstance(entry, dict):
            left += entry.values()
        elif isinstance(entry, list | tuple):
            left += entry
        elif isinstance(entry, torch.Tensor):
            is_strided = entry.layout == torch.strided and entry.device.type == "cpu"
            # A few bytes could stand for more numbers than fit into memory.
            if not is_strided or entry.untyped_storage().nbytes() < entry.nbytes:
                raise ValueError("a tensor is sparse, or smaller than its shape")
    return content


def load_tokenizer(file: Path, config: PosGPTConfig) -> PreTrainedTokenizerBase:
    """Build the tokenizer of a saved PosGPT from its vocabulary and what `add_tokens` added; nothing else in the file is used.

    Raises:
        BadInput: the vocabulary is not one symbol per character, or of another size than the model's.
    """
    try:
        content = load_json(file, "tokenizer of a model")
        added = {each["content"]: each["id"] for each in content.get("added_tokens", ())}
        vocabulary = content["model"]["vocab"] | added
        symbols = sorted(vocabulary, key=vocabulary.__getitem__)
        tokenizer = build_tokenizer((), config.max_position_embeddings, symbols)
        is_own = symbols[:2] == [PAD_TOKEN, MASK_TOKEN] and set(map(len, symbols)) == {1}
        is_own = is_own and tokenizer.get_vocab() == vocabulary and len(vocabulary) == config.vocab_size
    except (KeyError, TypeError, UnicodeError):
        is_own = False
    if not is_own:
        raise _refuse(
            file,
            f"not the vocabulary of the model, {config.vocab_size} symbols: □, ⁇ and one for each character",
        )
    return tokenizer


def load_model(name_or_path: str, **settings: Any) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a saved PosGPT and its tokenizer from a folder or the hub, without running or unpickling anything in it.

    The process does not use cuDNN's attention from then on.

    Args:
        settings: Fields of the configuration to change, and arguments of `from_pretrained`, such as `dtype`.

    Raises:
        BadInput: there is no such model, it is not a PosGPT, or one of its files is not what it should be.
    """
    avoid_cudnn_attention()
    changes = {name: settings.pop(name) for name in list(settings) if name in PosGPTConfig.__annotations__}
    config = load_config(name_or_path, changes)
    if config.relations is None:
        try:
            # Models saved before 0.3 say nothing of how they are asked.
            config.relations = load_task(name_or_path) or BIRTHPLACE.to_config()
        except (OSError, ValueError) as error:
            raise _refuse(name_or_path, shorten_error(error)) from None
    weights = load_weights(find_model_file(name_or_path, WEIGHTS_FILE), config)
    tokenizer = load_tokenizer(find_model_file(name_or_path, TOKENIZER_FILE), config)
    try:
        model = PosGPTForCausalLM.from_pretrained(None, config=config, state_dict=weights, **settings)
    except (ValueError, ImportError) as error:
        raise _refuse(name_or_path, shorten_error(error)) from None
    return model, tokenizer


def save_pretrained(
    model: Any, weights: dict[str, torch.Tensor] | None, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> PosGPTForCausalLM:
    """Save a model that is in training as it is to be loaded, and return it without weights.

    Trainer turned its cache off, and FSDP2 gave it a class of its own, without code to save.

    Args:
        weights: The whole of them; None: they are saved in shards elsewhere, and nothing is saved here.
    """
    config = deepcopy(model.config)
    config.use_cache = True
    with torch.device("meta"):
        saved = PosGPTForCausalLM(config).to(model.dtype)
    if weights is not None:
        saved.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
    return saved
