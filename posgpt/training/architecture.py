"""The architecture of a new model, as options of the training commands; `PosGPTConfig` says what each of them is."""

import json
from collections.abc import Collection, Iterator, KeysView
from dataclasses import dataclass, make_dataclass
from inspect import getdoc
from typing import Any, get_args

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils.chat_template_utils import parse_google_format_docstring

from data_scripts.errors import BadInput, reraise_as_bad_input
from data_scripts.options import option
from modeling_posgpt import BOTTLENECKS, POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM
from modeling_posgpt.composition import split_name
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.encodings import check_imported
from posgpt.training.saved_models import load_config, load_model


class PositionNames(KeysView[str]):
    """The names of position encodings; it contains sums of them, too. It is a view of the table, which may grow."""

    def __iter__(self) -> Iterator[str]:
        # `randomized` only changes positions, and needs an encoding that reads them.
        return (f"{name}+rotary" if name == "randomized" else name for name in POSITION_EMBEDDINGS)

    def __contains__(self, name: object) -> bool:
        return name != "randomized" and all(part in POSITION_EMBEDDINGS for part in split_name(str(name)))


CHOICES: dict[str, Collection[str]] = {
    "position_embedding_type": PositionNames(POSITION_EMBEDDINGS),
    "bottleneck_type": BOTTLENECKS,
}
# Options that are JSON on a command line.
_DICTIONARIES = [name for name, kind in PosGPTConfig.__annotations__.items() if dict in get_args(kind)]
# Options that stand for fields of other names.
ALIASES = {"block_size": ("max_position_embeddings",), "dropout": ("embd_pdrop", "resid_pdrop", "attention_dropout")}


@dataclass(kw_only=True)
class PositionArguments:
    """The positions of all models that a command trains."""

    position_embedding_type: str = option(
        "The models' positions.", default="rotary", choices=CHOICES["position_embedding_type"]
    )


@dataclass
class Architecture:
    """The options that `PosGPTConfig` has under other names, and what all of them are made into; None is not given."""

    _argument_group_name = "architecture of a new model"

    block_size: int | None = option("Maximum sequence length, in characters (default: 128).", default=None)
    dropout: float | None = option("Dropout rate of embeddings, residuals and attention (default: 0.1).", default=None)

    def __post_init__(self):
        given = {name: value for name, value in vars(self).items() if value is not None}
        if "bottleneck_type" in given and "bottleneck_size" not in given:
            raise BadInput("--bottleneck_type is an option of a bottleneck; leave it out, or add --bottleneck_size.")
        for name, value in given.items():
            if name == "position_embedding_type" and isinstance(value, list) and len(value) == 1:
                setattr(self, name, value[0])
            elif isinstance(value, str) and name in _DICTIONARIES:
                try:
                    setattr(self, name, json.loads(value))
                except ValueError:
                    raise BadInput(f"{name} is {value!r}; give a JSON object.") from None

    def list_config_values(self) -> dict[str, Any]:
        """Return what is given, under `PosGPTConfig`'s names."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {other: value for name, value in given.items() for other in ALIASES.get(name, (name,))}


def _derive_arguments() -> type[Architecture]:
    """Make options of the settings of every position embedding, and of other fields of `PosGPTConfig`, with its help."""
    _, helps, _ = parse_google_format_docstring(getdoc(PosGPTConfig) or "")
    types, options = PosGPTConfig.__annotations__, []
    settings = {name: own for member in POSITION_EMBEDDINGS.values() for name, own in member.settings.items()}
    sizes = ("bottleneck_size", "bottleneck_type", "hidden_size", "num_hidden_layers", "num_attention_heads")
    for name in dict.fromkeys(("position_embedding_type", *settings, *sizes)):
        # The setting of an encoding itself says what it is; a name alone may be no field.
        if (own := settings.get(name)) is not None:
            kinds, default, text = (type(own.default),), own.default, own.help
        elif name in types:
            # The parser takes no unions of several types: of `float | int | None`, the first.
            kinds, default = get_args(types[name]) or (types[name],), getattr(PosGPTConfig, name)
            text = (helps or {})[name]
        else:
            continue
        text = text.rstrip(".") + ("." if default is None else f" (default: {default}).")
        made = option(text, default=None, **({"choices": CHOICES[name]} if name in CHOICES else {}))
        kind = list[str] if list[str] in kinds else dict | str if dict in kinds else kinds[0]
        options.append((name, kind | None, made))
    return make_dataclass("ArchitectureArguments", options, bases=(Architecture,))


ArchitectureArguments: Any = _derive_arguments()


def build_config(architecture: Architecture, **settings: Any) -> PosGPTConfig:
    """Return the configuration of the model that is trained; `settings` are fields that follow from the data."""
    # A setting that is a dictionary may have numbers of other types in it, or too few.
    kinds = (StrictDataclassError, ValueError, KeyError, TypeError, RuntimeError, ArithmeticError)
    with reraise_as_bad_input("the model cannot be built", "--help all lists the sizes.", *kinds):
        config = PosGPTConfig(**settings, **architecture.list_config_values())
        # Takes no memory.
        with torch.device("meta"):
            PosGPTForCausalLM(config)
    check_imported(config)
    return config


def build_model(
    architecture: Architecture, tokenizer: PreTrainedTokenizerBase, training_args: PosGPTTrainingArguments
) -> PosGPTForCausalLM:
    """Initialize a model from the seed; raises as `build_config` does."""
    config = build_config(architecture, vocab_size=len(tokenizer))
    set_seed(training_args.seed)
    return PosGPTForCausalLM._from_config(config, attn_implementation=training_args.attn_implementation)


def load_pretrained(
    name_or_path: str, architecture: Architecture, training_args: PosGPTTrainingArguments
) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load the model that training begins with, and its tokenizer."""
    changes = architecture.list_config_values()
    is_dropped = changes.get("position_embedding_type") == "none"
    if is_dropped:
        # Positions without weights may be left out from now on (DroPE, Gelberg et al. 2025, arXiv 2512.12167).
        changes["rope_parameters"] = None
        config = load_config(name_or_path, {})
        for name in config.position_names:
            encoding = POSITION_EMBEDDINGS[name](config, 0)
            # The tokens of `sinusoidal` are scaled with their positions.
            if next(encoding.parameters(), None) is not None or getattr(encoding, "embed_scale", 1) != 1:
                raise BadInput(
                    f"{name_or_path}: positions {name!r} cannot be dropped, since they have weights or scale tokens."
                )
    free = {"dropout", *(["position_embedding_type"] if is_dropped else [])}
    if fixed := sorted(name for name, value in vars(architecture).items() if value is not None and name not in free):
        reason = f"{', '.join(fixed)} cannot change in a pretrained model"
        raise BadInput(f"{reason}; leave that out, or leave --model_name_or_path out to train from scratch.")
    attention = training_args.attn_implementation
    return load_model(name_or_path, attn_implementation=attention, **changes)


def describe_size(model: PosGPTForCausalLM) -> str:
    """Return how many symbols and parameters a model has."""
    return f"{model.config.vocab_size:,} symbols; {model.num_parameters():,} parameters"
