"""What a position encoding is, and the table that `position_embedding_type` looks it up in.

One file `positions_NAME.py` has one encoding or close relatives; a line in `position_embeddings.py` imports it.
"""

import ast
import re
import sys
from collections.abc import Iterable
from importlib.util import decode_source
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import initialization
from transformers.dynamic_module_utils import get_relative_import_files

#: Where a module from the user's file keeps the code that it was imported from.
SOURCE = "__posgpt_source__"
# Files of this package that import the encodings themselves.
_ABOVE = {"position_embeddings", "configuration_posgpt", "layers", "bottleneck", "modeling_posgpt"}


class Setting(NamedTuple):
    """A field that an encoding adds to the configuration, of the type of its default; also an option of the commands."""

    default: Any
    help: str
    # The least that a number may be.
    at_least: float | None = None


class Place(NamedTuple):
    """Where the tokens of a forward pass are. Queries are the new tokens, keys all tokens, cached ones first.

    Attributes:
        queries: Positions of the new tokens, (batch or 1, length).
        keys: Positions of all tokens, (batch or 1, kv_length). Those of padding and of empty places in a static cache are
            arbitrary. Only encodings with a `relate` of their own find cached tokens here.
        first: The index of the first new token among the keys.
        visible: Which query sees which key, (batch or 1, 1, length, kv_length); None unless `needs_visibility`.
        previous: For each query the indices among the keys of the last `history` tokens that it sees before itself,
            (batch or 1, history, length), the nearest first; -1 where there is none. None without `history`.
        earlier: The hidden states of those tokens, as `mix` was given them; None without `history`.
        layer_idx: The layer.
        shared: What `prepare` returned.
    """

    queries: Tensor
    keys: Tensor
    first: int | Tensor = 0
    visible: Tensor | None = None
    previous: Tensor | None = None
    earlier: Tensor | None = None
    layer_idx: int = 0
    shared: Any = None

    def distances(self) -> Tensor:
        """Return i - j of queries i and keys j, (batch or 1, length, kv_length)."""
        return self.queries[:, :, None] - self.keys[:, None, :]


class PositionEncoding(nn.Module):
    """Where positions can enter a Transformer; a subclass overrides the hooks of the places where its positions do.

    Each layer has an object of its own. The hooks are called in the order in which they stand here.

    Attributes:
        settings: The configuration's fields that this encoding reads and not all do: names of fields of `PosGPTConfig`, or
            `{"name": Setting(default, help)}` of its own. Those of the classes that it derives from are added.
        is_shared: Whether one object serves all layers; always so with an `embed`.
        is_bounded: Whether positions end at `max_position_embeddings`: longer inputs are then refused.
        is_wide: Whether `encode` changes the width of queries and keys.
        is_narrow: Whether a hook takes queries or keys of width head_dim alone, and so not those of wide encodings.
        has_memo: Whether `encode` returns a memo. Models with a bottleneck are then refused, as they are with `history`.
        history: How many earlier hidden states `mix` or `encode` reads.
        needs_visibility: Whether a hook reads `place.visible`.
        matrices: Names of linear layers inside that Muon optimizes; AdamW has all other parameters.
        precise: Names of parameters that stay float32 in a model of half precision, such as those that angles of positions come from.
        relates_last: Whether `relate` scales queries and keys relative to the new tokens, so that a layer's other encodings read them first.
        has_bias: Whether `relate` is overridden. Flash attention, which takes no bias, is then refused.
    """

    settings: Any = {}
    is_shared = False
    is_bounded = False
    is_wide = False
    is_narrow = False
    has_memo = False
    history = 0
    needs_visibility = False
    matrices: tuple[str, ...] = ()
    precise: tuple[str, ...] = ()
    relates_last = False
    has_bias = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.has_bias = cls.relate is not PositionEncoding.relate
        cls.is_shared = cls.is_shared or cls.embeds()
        merged: dict[str, Setting | None] = {}
        for base in cls.__mro__:
            own = vars(base).get("settings", ())
            merged = (own if isinstance(own, dict) else dict.fromkeys(own)) | merged
        if wrong := [name for name, own in merged.items() if not isinstance(own, Setting | None)]:
            raise TypeError(
                f"{cls.__name__}.settings[{wrong[0]!r}] is {merged[wrong[0]]!r}; write Setting(default, help)"
            )
        cls.settings = merged

    def __init__(self, config, layer_idx: int):
        super().__init__()

    @classmethod
    def embeds(cls) -> bool:
        return cls.embed is not PositionEncoding.embed

    @staticmethod
    def check_config(config) -> None:
        """Raise ValueError when these positions do not work with the configuration."""

    @staticmethod
    def width(config) -> int:
        """Return how many of the `hidden_size` dimensions `embed` adds; the token's vector has the others."""
        return 0

    def init_weights(self) -> None:
        """Initialize the encoding's own parameters, and buffers with `persistent=False`, which no saved model has.

        What is inside a Linear, Embedding or LayerNorm has values without it. With functions of `transformers.initialization`: they
        leave alone what was loaded.
        """

    def number(self, positions: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return what all encodings take for the positions of new tokens and of keys; the masks do not."""
        return positions, keys

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        """Return the first layer's input, (batch, length, hidden_size).

        `inputs_embeds` are the tokens' vectors, (batch, length, hidden_size - width), at `position_ids` (batch or 1,
        length).
        """
        return inputs_embeds

    def prepare(self, hidden_states: Tensor, place: Place) -> Any:
        """Compute once for all layers what depends on no parameter, as their `place.shared`."""

    def mix(self, hidden_states: Tensor, previous: Tensor, place: Place) -> Tensor:
        """Return what queries, keys and values are computed from, (batch, length, hidden_size).

        `previous` (batch, history, length, hidden_size) are the states of the tokens that each token sees before itself, the
        nearest first; zeros where there is none.
        """
        return hidden_states

    def encode(
        self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return queries and keys of the new tokens at `place.queries`, and a memo that later tokens need.

        Both are (batch, heads, length, head_dim), and the memo (batch, heads, length, any width). It is cached beside the key.
        """
        return query, key, None

    def relate(
        self, query: Tensor, key: Tensor, memo: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return queries, all keys, and what is added to the scores, (batch or 1, heads, length, kv_length), or None.

        `key` and `memo` are (batch, heads, kv_length, width), cached ones first.
        """
        return query, key, None

    def _apply(self, fn, recurse=True):
        # Torch has no public way to move constants and not convert them, and angles of positions need float32's digits.
        constants = {name: buffer for name, buffer in self.named_buffers(recurse=False) if buffer.is_floating_point()}
        constants |= {name: self.get_parameter(name).data for name in self.precise}
        super()._apply(fn, recurse)
        for name, constant in constants.items():
            if constant.is_meta:
                # There is nothing to keep; `init_weights` is called when weights are initialized.
                continue
            moved = cast(Tensor, getattr(self, name))
            moved.data = constant.to(moved.device)
        return self

    def check_positions(self, position_ids: Tensor, maximum: int) -> None:
        """Raise ValueError when one of the positions (batch or 1, length) is not below `maximum`, if they end there."""
        if not self.is_bounded or torch.compiler.is_compiling():
            return
        # Reading a value makes the CPU wait for the GPU: there, only rows that are too long and single new tokens, which
        # may have reached the end, are checked.
        length = position_ids.shape[-1]
        is_checked = length > maximum or length == 1 or position_ids.device.type == "cpu"
        if is_checked and (last := int(position_ids.max())) >= maximum:
            raise ValueError(
                f"{last + 1} tokens, but positions end at max_position_embeddings = {maximum}: shorten the input or train a"
                " model with a larger max_position_embeddings."
            )


#: Every position encoding by the name that `position_embedding_type` has for it.
POSITION_EMBEDDINGS: dict[str, type[PositionEncoding]] = {}


def register(name: str):
    """Put a class into the table under a name: `@register("mine")` above the class."""

    def add(cls: type[PositionEncoding]) -> type[PositionEncoding]:
        if not (isinstance(cls, type) and issubclass(cls, PositionEncoding)):
            raise TypeError(f"{name}: {cls!r} is no PositionEncoding; derive the class from it.")
        if not name or set("+.") & set(name) or hasattr(nn.ModuleDict(), name):
            raise ValueError(f"{name!r} cannot name positions: choose a word without + and . that torch does not use.")
        known = POSITION_EMBEDDINGS.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{name!r} is the name of {known.__qualname__} already; choose another one.")
        POSITION_EMBEDDINGS[name] = cls
        file = Path(getattr(module := sys.modules[cls.__module__], "__file__", None) or "")
        if file.suffix == ".py" and file.is_file() and not cls.__module__.startswith(f"{__package__}."):
            # A saved model contains what it was trained with, whatever the file becomes meanwhile.
            setattr(module, SOURCE, decode_source(file.read_bytes()))
        return cls

    return add


def check_is_portable(file: Path, code: str) -> None:
    """Raise ValueError when a file's code, copied into a saved model, would not find there what it imports."""
    ours, tree = Path(__file__).parent, ast.parse(code)
    # Files beside it are not saved.
    beside = {"modeling_posgpt", *(each.stem for each in file.parent.glob("*.py"))}
    beside |= {each.parent.name for each in file.parent.glob("*/__init__.py")}
    if (ours / file.name).is_file():
        raise ValueError(
            f"a saved model has a file {file.name} of PosGPT's own; give the file of your encoding another name."
        )
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        package, _, inside = (getattr(node, "module", None) or "").partition(".")
        if getattr(node, "level", 0):
            # As in a file from a saved model.
            lost = [] if (ours / f"{package}.py").is_file() else names
        elif package == "modeling_posgpt":
            is_part = node in tree.body and inside not in _ABOVE
            lost = [name for name in names if not (is_part and (inside or name in globals()))]
        else:
            lost = [name for name in names if (package or name.partition(".")[0]) in beside]
        if lost:
            raise ValueError(
                f"{file.name} imports {lost[0]}, which it would not find in a saved model; at the top of the file, write `from"
                " modeling_posgpt import NAME` for what position encodings are made of, and `from modeling_posgpt.FILE import"
                " NAME` for parts of encodings."
            )


def read_code(encoding: type[PositionEncoding]) -> tuple[str, str]:
    """Return the name of an encoding's module, and its code as a saved model contains it: it imports what it needs from the files beside it.

    Raise ValueError when it could not.
    """
    module = encoding.__module__.rpartition(".")[2]
    source = getattr(sys.modules.get(encoding.__module__), "__file__", None)
    if source is None or module == "__main__":
        raise ValueError(
            f"{encoding.__name__} is defined in no module that a saved model could contain; write it into a file of its"
            " own and import that."
        )
    code = getattr(sys.modules[encoding.__module__], SOURCE, None) or Path(source).read_text(encoding="utf-8")
    if encoding.__module__ != f"{__package__}.{module}":
        check_is_portable(Path(source), code)
    code = re.sub(r"^from modeling_posgpt import", "from .position_encoding import", code, flags=re.M)
    return module, re.sub(r"^from modeling_posgpt\.(\w+) import", r"from .\1 import", code, flags=re.M)


def save_encodings(folder: Path, encodings: Iterable[type[PositionEncoding]]) -> None:
    """Let a folder, into which transformers has copied this package's files, have those of these encodings alone, and of others a copy."""
    table, lines = folder / "position_embeddings.py", []
    for encoding in encodings:
        module, code = read_code(encoding)
        (folder / f"{module}.py").write_text(code, encoding="utf-8")
        lines.append(f"from .{module} import {encoding.__name__}\n")
    if table.is_file():
        kept = table.read_text(encoding="utf-8").partition("from .positions_")[0]
        kept = "".join(line for line in kept.splitlines(True) if line not in lines)
        table.write_text(kept + "".join(lines), encoding="utf-8")
        needed = {Path(file).name for file in get_relative_import_files(table)}
        # What else the folder has is somebody else's.
        for file in Path(__file__).parent.glob("positions_*.py"):
            if file.name not in needed:
                (folder / file.name).unlink(missing_ok=True)


def init_linears(module: nn.Module) -> None:
    """Initialize the linear layers of a small network from torch's own range, weights and biases, as authors' code does."""
    for each in module.modules():
        if isinstance(each, nn.Linear):
            for parameter in each.parameters():
                initialization.uniform_(parameter, -(each.in_features**-0.5), each.in_features**-0.5)


def convolve(states: Tensor, conv: nn.Conv1d) -> Tensor:
    """Return a causal convolution, one filter per dimension, of states (batch, taps, length, width), the token itself first."""
    # (width, 1, taps), the weight of the token itself last.
    return (states * conv.weight[:, 0].T.flip(0)[:, None]).sum(1)


def find_previous(visible: Tensor, first: int | Tensor, history: int) -> Tensor:
    """Return `Place.previous` from `Place.visible`: earlier tokens are counted among those that a query sees."""
    length, kv_length = visible.shape[2:]
    keys = torch.arange(kv_length, device=visible.device)
    queries = torch.arange(length, device=visible.device) + first
    earlier = visible[:, 0] & (keys < queries[:, None])
    # The nearest is 1, the one before it 2, ...
    count = earlier.flip(-1).cumsum(-1).flip(-1)
    found = [earlier & (count == number) for number in range(1, history + 1)]
    return torch.stack([torch.where(each.any(-1), each.int().argmax(-1), -1) for each in found], dim=1)


def gather_previous(states: Tensor, previous: Tensor) -> Tensor:
    """Return the `states` (batch, kv_length, hidden_size) at indices (batch or 1, history, length), zeros at -1."""
    batch, _, width = states.shape
    index = previous.clamp(min=0).expand(batch, -1, -1)
    taken = states.gather(1, index.flatten(1)[..., None].expand(-1, -1, width)).unflatten(1, index.shape[1:])
    return taken * (previous >= 0)[..., None].to(states.dtype)
