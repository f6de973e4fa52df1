"""The architecture of a new model, as options of the training commands; `PosGPTConfig` says what each of them is."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, make_dataclass
from inspect import getdoc
from types import UnionType
from typing import Any, Union, get_args, get_origin

import psutil
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils.chat_template_utils import parse_google_format_docstring

from data_scripts.errors import BadInput
from data_scripts.options import option, shorten_error
from modeling_posgpt import BOTTLENECKS, POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.saved_models import load_model

# Fields of `PosGPTConfig` that are options, as are the settings of every position embedding. (The config of one that comes from
# outside this package can have other fields, without a type and a line of help.)
CONFIG_FIELDS = (
    "position_embedding_type",
    *(
        name
        for name in dict.fromkeys(name for member in POSITION_EMBEDDINGS.values() for name in member.settings)
        if name in PosGPTConfig.__annotations__
    ),
    "bottleneck_size",
    "bottleneck_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
)
# Options that stand for other fields.
CONFIG_ALIASES = {
    "block_size": ("max_position_embeddings",),
    "dropout": ("embd_pdrop", "resid_pdrop", "attention_dropout"),
}
DICTIONARIES = [name for name in CONFIG_FIELDS if dict in get_args(PosGPTConfig.__annotations__[name])]
CHOICES = {"position_embedding_type": list(POSITION_EMBEDDINGS), "bottleneck_type": list(BOTTLENECKS)}


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


def _list_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and dataclass field of every option; an option that is not given is None."""
    _, args, _ = parse_google_format_docstring(getdoc(PosGPTConfig) or "")
    for name in CONFIG_FIELDS:
        hint, default = PosGPTConfig.__annotations__[name], getattr(PosGPTConfig, name)
        if name in DICTIONARIES:
            # JSON on a command line.
            hint = dict | str
        elif get_origin(hint) in (Union, UnionType):
            # The parser takes no unions of several types: of `float | int | None`, the first.
            hint = get_args(hint)[0]
        text = (args or {})[name].rstrip(".") + ("." if default is None else f" (default: {default}).")
        yield name, hint | None, option(text, default=None, **({"choices": CHOICES[name]} if name in CHOICES else {}))
    yield "block_size", int | None, option("Maximum sequence length, in characters (default: 128).", default=None)
    text = "Dropout rate of embeddings, residuals and attention (default: 0.1)."
    yield "dropout", float | None, option(text, default=None)


def _check(self: Any) -> None:
    for name in DICTIONARIES:
        value = getattr(self, name)
        if isinstance(value, str):
            with suppress(ValueError):
                setattr(self, name, json.loads(value))
            if not isinstance(getattr(self, name), dict):
                raise BadInput(f"{name} is {value!r}; give a JSON object.")
    if self.bottleneck_type in BOTTLENECKS and self.bottleneck_size is None:
        raise BadInput("--bottleneck_type is an option of a bottleneck; leave it out, or add --bottleneck_size.")


ArchitectureArguments: Any = make_dataclass(
    "ArchitectureArguments",
    _list_options(),
    namespace={"__post_init__": _check, "_argument_group_name": "architecture of a new model"},
)


def list_config_values(architecture: Any) -> dict[str, Any]:
    """Return the `ArchitectureArguments` that are given, under `PosGPTConfig`'s names."""
    given = {name: value for name, value in vars(architecture).items() if value is not None}
    return {other: value for name, value in given.items() for other in CONFIG_ALIASES.get(name, (name,))}


def choose_max_length(architecture: Any) -> int:
    """Return the maximum sequence length, in characters."""
    return PosGPTConfig.max_position_embeddings if architecture.block_size is None else architecture.block_size


def build_config(architecture: Any, **settings: Any) -> PosGPTConfig:
    """Return the configuration of the model that is trained.

    Args:
        settings: Fields that follow from the data.

    Raises:
        BadInput: the sizes are not compatible or too large.
    """
    try:
        config = PosGPTConfig(**settings, **list_config_values(architecture))
        with torch.device("meta"):
            size = sum(parameter.nbytes for parameter in PosGPTForCausalLM(config).parameters())
        if size > psutil.virtual_memory().total:
            raise ValueError(
                f"its weights take {size / 2**30:,.0f} GiB, more than this machine's memory; choose smaller sizes"
            )
        return config
    # A setting that is a dictionary may have numbers of other types in it, or too few.
    except (StrictDataclassError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise _refuse(error) from None


def _refuse(error: Exception) -> BadInput:
    reason = shorten_error(error.__cause__ or error).rstrip(".")
    return BadInput(f"the model cannot be built: {reason}; --help lists the sizes.")


def build_model(
    architecture: Any, tokenizer: PreTrainedTokenizerBase, training_args: PosGPTTrainingArguments
) -> PosGPTForCausalLM:
    """Initialize a model from the seed.

    Raises:
        BadInput: the sizes are not compatible or too large, or there is no such attention implementation.
    """
    attention = training_args.choose_attention()
    config = build_config(architecture, vocab_size=len(tokenizer))
    set_seed(training_args.seed)
    try:
        return PosGPTForCausalLM._from_config(config, attn_implementation=attention)
    except (ValueError, ImportError) as error:
        raise _refuse(error) from None


def load_pretrained(
    name_or_path: str, architecture: Any, training_args: PosGPTTrainingArguments
) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load the model that training begins with, and its tokenizer. Of the `ArchitectureArguments`, only dropout may be given.

    Raises:
        BadInput: there is no such model, or its size would change.
    """
    if fixed := sorted(name for name, value in vars(architecture).items() if value is not None and name != "dropout"):
        raise BadInput(
            f"{', '.join(fixed)} cannot change in a pretrained model; leave that out, or leave --model_name_or_path out to"
            " train from scratch."
        )
    attention = training_args.choose_attention()
    return load_model(name_or_path, attn_implementation=attention, **list_config_values(architecture))


def add_characters(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], seed: int
) -> PreTrainedTokenizerBase:
    """Give a model the characters of `texts` that it does not know, after its own; return its new tokenizer.

    transformers initializes their rows in the embedding and the output layer close to the mean of those that are there.
    """
    vocabulary = tokenizer.get_vocab()
    extended = build_tokenizer(texts, tokenizer.model_max_length, sorted(vocabulary, key=vocabulary.__getitem__))
    if len(extended) > len(tokenizer):
        set_seed(seed)
        model.resize_token_embeddings(len(extended))
    return extended


def describe_size(model: PosGPTForCausalLM) -> str:
    """Return how many symbols and parameters a model has, and what the tables of symbols take of the latter."""
    layers: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    in_tables, total = sum(table.numel() for table in {layer.weight for layer in layers}), model.num_parameters()
    return (
        f"{model.config.vocab_size:,} symbols; {total:,} parameters, {in_tables / total:.0%} of them in the embedding and output"
        " layers, which grow with the symbols"
    )
