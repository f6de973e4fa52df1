"""The configuration of PosGPT models."""

import json
import math
import os
from copy import copy
from itertools import chain, cycle, islice
from pathlib import Path

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import RopeParameters
from transformers.utils import cached_file

from .bottleneck import BOTTLENECKS
from .cache import CACHE
from .composition import check_parts, list_names, split_name
from .position_embeddings import POSITION_EMBEDDINGS
from .position_encoding import PositionEncoding, save_encodings

#: What a model's folder says of its task: the `relations` that it can be asked. Folders of versions before 0.6 have them in
#: `config.json`.
TASK_FILE = "task.json"
# Building more takes longer than anyone means to wait; the deepest models known have 1,000.
MOST_LAYERS = 1_000


@strict
class PosGPTConfig(PreTrainedConfig):
    """Sizes and choices of a PosGPT. The defaults are the course's: 3,323,392 parameters (3,290,624 with `"rotary"`).

    Args:
        vocab_size: Number of symbols, including PAD and MASK.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP's hidden layer; by default 4 * hidden_size.
        num_hidden_layers: Number of layers.
        num_attention_heads: Number of attention heads per layer; has to divide hidden_size.
        hidden_act: Activation function of the MLP.
        max_position_embeddings: Maximum sequence length, in tokens.
        position_embedding_type: How positions are encoded: learned, rotary or another name of docs/positions.md, several joined
            by +, as in rotary+fox, or a list of these, one for each layer; a shorter list is repeated.
        rope_parameters: For rotary positions: how they are scaled, as transformers defines it, e.g.
            {"rope_type": "linear", "factor": 4.0}.
        position_initializer_range: For learned and concatenated positions: standard deviation of the normal distribution
            that initializes their vectors; by default initializer_range.
        position_share: For concatenated positions: the share of hidden_size, between 0 and 1, that holds the position.
        relative_attention_max_distance: For relative_bias positions: longer distances are clipped to this one; by default
            max_position_embeddings - 1.
        scale_embedding: For sinusoidal positions: whether tokens' vectors are multiplied by sqrt(hidden_size) before
            positions are added.
        bottleneck_size: Number of latents through which the model reads the sequence: its first layer maps the tokens to
            them and its last layer maps them back to the tokens; by default there is no such bottleneck.
        bottleneck_type: Which latent of a bottleneck sees which tokens: a name in `BOTTLENECKS`.
        is_causal: Whether a token sees only itself and the tokens before it; a model that is not causal cannot generate.
        embd_pdrop: Dropout rate of the embeddings.
        resid_pdrop: Dropout rate of what each attention and each MLP adds to the residual stream.
        attention_dropout: Dropout rate of the attention weights.
        layer_norm_eps: Number added to the variance in each LayerNorm.
        initializer_range: Standard deviation of the normal distribution that initializes the weights.
        use_cache: Whether the model returns its keys and values, so that generation need not compute them again.
        relations: What the model can be asked: for each relation its wordings, of which questions use the first, e.g.
            {"birthplace": {"wordings": ["Where was {title} born?"], "baseline": "London"}}. Saved in `task.json`, beside
            `config.json`.
        max_answer_length: The maximum number of characters that `answer` writes.
        pad_token_id: Id of `□`, which pads batches and stands for unknown characters.
        bos_token_id: Id of a token that begins a text; PosGPT uses none.
        eos_token_id: Id of `⁇`, which ends an answer.
        tie_word_embeddings: Whether the output layer shares its weights with the token embedding.

    Raises:
        StrictDataclassClassValidationError: sizes or choices are not compatible; its cause, a ValueError, says why.
    """

    model_type = "posgpt"
    keys_to_ignore_at_inference = [CACHE]

    vocab_size: int = 256
    hidden_size: int = 256
    intermediate_size: int | None = None
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    hidden_act: str = "gelu"
    max_position_embeddings: int = 128
    position_embedding_type: str | list[str] = "learned"
    rope_parameters: RopeParameters | dict | None = None
    position_initializer_range: float | int | None = None
    position_share: float = 0.25
    relative_attention_max_distance: int | None = None
    scale_embedding: bool = True
    bottleneck_size: int | None = None
    bottleneck_type: str = "perceiver"
    is_causal: bool = True
    embd_pdrop: float | int = 0.1
    resid_pdrop: float | int = 0.1
    attention_dropout: float | int = 0.1
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    use_cache: bool = True
    relations: dict | None = None
    max_answer_length: int = 32
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 1
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        # `complete` adds to it, and others may be made from the same.
        self.rope_parameters = copy(self.rope_parameters)
        # A saved folder contains the code as well; `save_pretrained` alone would name only the class that it saves.
        kwargs.setdefault(
            "auto_map",
            {
                "AutoConfig": "configuration_posgpt.PosGPTConfig",
                "AutoModel": "modeling_posgpt.PosGPTModel",
                "AutoModelForCausalLM": "modeling_posgpt.PosGPTForCausalLM",
            },
        )
        super().__post_init__(**kwargs)

    def complete(self) -> None:
        """Set what the encodings in use need and the configuration lacks."""
        settings = chain(*(each.settings.items() for each in self.position_encodings))
        defaults = {name: setting.default for name, setting in settings if setting is not None}
        for name, default in defaults.items():
            if getattr(self, name, None) is None:
                setattr(self, name, default)
        if self.rope_parameters and self.rope_parameters.get("rope_theta", 0) is None:
            # transformers leaves None in parameters that are set later.
            del self.rope_parameters["rope_theta"]
        if "rope_theta" not in (self.rope_parameters or ()):
            self.convert_rope_params_to_dict()

    @property
    def layer_position_embeddings(self) -> list[str]:
        """The name of each layer's position encoding."""
        names = self.position_embedding_type
        names = [names] if isinstance(names, str) else names
        return [*islice(cycle(names), self.num_hidden_layers)]

    @property
    def position_encodings(self) -> list[type[PositionEncoding]]:
        """The classes in use, each once; names that are unknown are left out."""
        return [POSITION_EMBEDDINGS[name] for name in self.position_names if name in POSITION_EMBEDDINGS]

    @property
    def position_names(self) -> list[str]:
        """The names of the encodings in use, each once."""
        return list_names(self.position_embedding_type)

    # A dataclass's own would leave out what is no field: the settings that only some encodings have.
    __eq__ = PreTrainedConfig.__eq__

    @property
    def head_dim(self) -> int:
        """Number of dimensions of an attention head."""
        return self.hidden_size // self.num_attention_heads

    def convert_rope_params_to_dict(self, **kwargs):
        """Standardize `rope_parameters` for the position embeddings that use them; others have none."""
        if any("rope_parameters" in each.settings for each in self.position_encodings):
            kwargs = super().convert_rope_params_to_dict(**kwargs)
        return kwargs

    def to_json_string(self, use_diff: bool = True) -> str:
        """Return transformers' JSON without the relations: a model's folder has them in `task.json`."""
        settings = json.loads(super().to_json_string(use_diff))
        settings.pop("relations", None)
        return json.dumps(settings, indent=2) + "\n"

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """Return a configuration with what `kwargs` change; see transformers, which would set these unchecked and leave out defaults."""
        fields = {*cls.__annotations__, *chain(*(each.settings for each in POSITION_EMBEDDINGS.values()))}
        given = {name: kwargs.pop(name) for name in fields & kwargs.keys()}
        if "position_embedding_type" in given:
            chosen = [POSITION_EMBEDDINGS.get(name) for name in list_names(given["position_embedding_type"])]
            if not any(each and "rope_parameters" in each.settings for each in chosen):
                # Those of the rotary positions that these take the place of.
                given.setdefault("rope_parameters", None)
        # AutoConfig calls this alone; saved again, the configuration would leave the folder without its task.
        folder = kwargs.get("name_or_path")
        if "relations" not in config_dict | given and folder and Path(folder).is_dir():
            given["relations"] = load_task(folder, {})
        return super().from_dict(config_dict | given, **kwargs)

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        """Return what the folder's `config.json` and its task say; see transformers."""
        settings, unused = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if settings and "relations" not in settings and Path(pretrained_model_name_or_path).suffix != ".json":
            settings["relations"] = load_task(pretrained_model_name_or_path, kwargs)
        return settings, unused

    def save_pretrained(self, save_directory: str | os.PathLike, *args, **kwargs) -> None:
        """Save the configuration and, beside it, the task; see transformers. A model's `save_pretrained` calls this."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TASK_FILE).unlink(missing_ok=True)
        if self.relations:
            task = json.dumps({"relations": self.relations}, indent=2, ensure_ascii=False)
            (folder / TASK_FILE).write_text(task + "\n", encoding="utf-8")
        super().save_pretrained(save_directory, *args, **kwargs)
        save_encodings(folder, self.position_encodings)

    def validate_architecture(self):
        """Check that sizes and choices are compatible; called by `@strict`, which has checked their types."""
        named = [("position_embedding_type", name, POSITION_EMBEDDINGS) for name in self.position_names]
        for name, value, choices in [*named, ("bottleneck_type", self.bottleneck_type, BOTTLENECKS)]:
            if value not in choices:
                hint = ", or import the file that registers it" if choices is POSITION_EMBEDDINGS else ""
                # As the course's handouts call it.
                hint += "; RoPE is 'rotary'" if hint and value == "rope" else ""
                raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}{hint}.")
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
        for name in (*sizes, "max_position_embeddings", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)} and must be at least 1.")
        if self.num_hidden_layers > MOST_LAYERS:
            raise ValueError(f"num_hidden_layers is {self.num_hidden_layers:,}; choose at most {MOST_LAYERS:,}.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads"
                f" ({self.num_attention_heads}); choose a number of heads that divides it."
            )
        if self.hidden_act not in ACT2FN:
            raise ValueError(f"hidden_act is {self.hidden_act!r}; choose an activation of transformers, such as gelu.")
        for name in ("layer_norm_eps", "initializer_range"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; choose a number above 0.")
        for name in ("embd_pdrop", "resid_pdrop", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}, a dropout rate, is {getattr(self, name)}; choose one from 0 to below 1.")
        if self.bottleneck_size is not None:
            if not 1 <= self.bottleneck_size <= self.max_position_embeddings:
                raise ValueError(
                    f"bottleneck_size is {self.bottleneck_size}; choose 1 to {self.max_position_embeddings} latents."
                )
            if self.num_hidden_layers < 2 or not self.is_causal:
                raise ValueError("a bottleneck needs num_hidden_layers of at least 2, and is_causal.")
        self.check_positions()
        for name, relation in (self.relations or {}).items():
            check_relation(name, relation)

    def check_positions(self) -> None:
        """Raise ValueError when the position encodings do not work together, with their settings or with the sizes."""
        names, encodings = self.position_embedding_type, self.position_encodings
        if isinstance(names, list) and (not names or self.num_hidden_layers % len(names)):
            raise ValueError(
                f"position_embedding_type has {len(names)} names for {self.num_hidden_layers} layers; give one name for each"
                " layer, one for all, or a pattern that fills them when it is repeated."
            )
        for name in [names] if isinstance(names, str) else names:
            check_parts(name, [POSITION_EMBEDDINGS[part] for part in split_name(name)])
        # Of a new configuration, and of one whose encodings have been changed since it was made.
        self.complete()
        if len(embedding := [each.__name__ for each in encodings if each.embeds()]) > 1:
            raise ValueError(
                f"{' and '.join(embedding)} both embed positions before the first layer; choose one of them."
            )
        for encoding in encodings:
            if self.bottleneck_size is not None and (encoding.history or encoding.has_memo):
                raise ValueError(
                    f"{encoding.__name__} remembers earlier tokens, which a bottleneck does not keep; choose other positions,"
                    " or leave bottleneck_size out."
                )
            if self.bottleneck_size is not None and encoding.number is not PositionEncoding.number:
                raise ValueError(
                    f"a bottleneck divides texts by positions, which {encoding.__name__} numbers anew: choose other positions, or"
                    " leave bottleneck_size out."
                )
            if not self.is_causal and (encoding.history or encoding.needs_visibility):
                raise ValueError(f"{encoding.__name__} counts back from each token: is_causal has to be True.")
            for name, setting in encoding.settings.items():
                value = getattr(self, name)
                # A whole number may stand for any number.
                value = float(value) if setting and type(setting.default) is float and type(value) is int else value
                if setting and not isinstance(value, type(setting.default)):
                    raise ValueError(f"{name} is {value!r}; choose a value like {setting.default!r}.")
                if setting and setting.at_least is not None and value < setting.at_least:
                    raise ValueError(f"{name} is {value}; choose at least {setting.at_least}.")
            encoding.check_config(self)
        if self.rope_parameters and not any("rope_parameters" in each.settings for each in encodings):
            users = [name for name, each in POSITION_EMBEDDINGS.items() if "rope_parameters" in each.settings]
            raise ValueError(
                f"rope_parameters are given, but position_embedding_type {names!r} does not use them; leave them out or choose"
                f" {' or '.join(map(repr, users))}."
            )


def load_task(name_or_path: str | os.PathLike, options: dict) -> dict | None:
    """Return the relations of a saved model's task, None if it has none; raise ValueError if it is not as it was saved.

    `name_or_path` is a folder or a name on the hub, and `options` are those of `from_pretrained`, such as `revision`.
    """
    names = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")
    where = {name: options[name] for name in names if options.get(name) is not None}
    file = cached_file(name_or_path, TASK_FILE, _raise_exceptions_for_missing_entries=False, **where)
    if file is None:
        return None
    try:
        task = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError:
        task = None
    if not isinstance(task, dict) or not isinstance(task.get("relations"), dict):
        raise ValueError(f"{file}: holds no relations; copy the model again.")
    for name, relation in task["relations"].items():
        check_relation(name, relation)
    return task["relations"]


def check_relation(name: str, relation: dict) -> None:
    """Raise ValueError when a relation has no wordings that name `{title}` once, or a name or a baseline that is not text."""
    wordings = relation.get("wordings") if isinstance(relation, dict) else None
    if not isinstance(wordings, list) or not wordings:
        raise ValueError(
            f"relation {name!r} is {repr(relation)[:60]}; it needs wordings, a list of questions:"
            ' {"wordings": ["What is the capital of {title}?"]}.'
        )
    if not isinstance(name, str) or not isinstance(relation.get("baseline", ""), str):
        raise ValueError(f"relation {name!r} has a name or a baseline that is not text; put it in quotes.")
    if name in ("all", "together"):
        raise ValueError(f"relation {name!r}: in results, this stands for all relations; choose another name.")
    for wording in wordings:
        before, title, after = wording.partition("{title}") if isinstance(wording, str) else ("", "", "")
        if not title or "{title}" in after or not any(map(str.isalnum, before + after)):
            raise ValueError(f"relation {name!r}: wording {repr(wording)[:60]} needs {{title}} once, and other words.")


PosGPTConfig.register_for_auto_class()
