"""The architecture of a new model, as options of the training commands; `PosGPTConfig` says what each of them is."""

import json
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
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.saved_models import load_model

CHOICES = {"position_embedding_type": list(POSITION_EMBEDDINGS), "bottleneck_type": list(BOTTLENECKS)}
# Options that stand for fields of other names.
ALIASES = {
    "block_size": ("max_position_embeddings",),
    "dropout": ("embd_pdrop", "resid_pdrop", "attention_dropout"),
}


@dataclass(kw_only=True)
class PositionArguments:
    """The positions of all models that a command trains."""

    position_embedding_type: str = option(
        "The models' positions.", default="rotary", choices=CHOICES["position_embedding_type"]
    )


@dataclass(kw_only=True)
class PretrainedArguments:
    """The model that training begins with; see `load_pretrained`."""

    model_name_or_path: str | None = option(
        "A pretrained PosGPT, a folder or a name on the hub; without it, training is from scratch.", default=None
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
            if isinstance(value, str) and name not in CHOICES:
                # A dictionary is JSON on a command line.
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
    settings = {name: None for member in POSITION_EMBEDDINGS.values() for name in member.settings}
    sizes = ("bottleneck_size", "bottleneck_type", "hidden_size", "num_hidden_layers", "num_attention_heads")
    for name in ("position_embedding_type", *settings, *sizes):
        # The config of an embedding from outside this package can have other fields, without a type and a line of help.
        if name in types:
            # The parser takes no unions of several types: of `float | int | None`, the first.
            kinds, default = get_args(types[name]) or (types[name],), getattr(PosGPTConfig, name)
            text = (helps or {})[name].rstrip(".") + ("." if default is None else f" (default: {default}).")
            made = option(text, default=None, **({"choices": CHOICES[name]} if name in CHOICES else {}))
            options.append((name, (dict | str if dict in kinds else kinds[0]) | None, made))
    return make_dataclass("ArchitectureArguments", options, bases=(Architecture,))


ArchitectureArguments: Any = _derive_arguments()


def build_config(architecture: Architecture, **settings: Any) -> PosGPTConfig:
    """Return the configuration of the model that is trained; `settings` are fields that follow from the data."""
    # A setting that is a dictionary may have numbers of other types in it, or too few.
    kinds = (StrictDataclassError, ValueError, KeyError, TypeError, RuntimeError)
    with reraise_as_bad_input("the model cannot be built", "--help lists the sizes.", *kinds):
        config = PosGPTConfig(**settings, **architecture.list_config_values())
        # Takes no memory.
        with torch.device("meta"):
            PosGPTForCausalLM(config)
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
    if fixed := sorted(name for name, value in vars(architecture).items() if value is not None and name != "dropout"):
        reason = f"{', '.join(fixed)} cannot change in a pretrained model"
        raise BadInput(f"{reason}; leave that out, or leave --model_name_or_path out to train from scratch.")
    attention = training_args.attn_implementation
    return load_model(name_or_path, attn_implementation=attention, **architecture.list_config_values())


def describe_size(model: PosGPTForCausalLM) -> str:
    """Return how many symbols and parameters a model has."""
    return f"{model.config.vocab_size:,} symbols; {model.num_parameters():,} parameters"
