"""Checks of position encodings that are the user's own, before a model with them is trained."""

import re
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache, StaticCache

from data_scripts.errors import BadInput, reraise_as_bad_input
from modeling_posgpt import Place, PosGPTConfig, PosGPTForCausalLM, PositionEncoding
from modeling_posgpt.position_encoding import find_previous, save_encodings

HOOKS = {"number", "embed", "prepare", "mix", "encode", "relate"}


def check_imported(config: PosGPTConfig) -> None:
    """Check a configuration's encodings that are not PosGPT's own: their hooks, how a model with them writes, and that a saved one can
    contain them.
    """
    own = [each for each in config.position_encodings if not each.__module__.startswith("modeling_posgpt.")]
    for encoding in own:
        near = {name: get_close_matches(name, HOOKS, 1) for name in vars(encoding)}
        if not near.keys() & HOOKS and (wrong := next(filter(near.get, near), None)):
            raise BadInput(f"{encoding.__name__}.{wrong} is no hook; did you mean {near[wrong][0]}?")
        check_hooks(encoding, config)
    if not own:
        return
    check_writing(config)
    with TemporaryDirectory() as folder:
        try:
            save_encodings(Path(folder), own)
        except ValueError as error:
            raise BadInput(f"no model could be saved: {error}") from None


def check_writing(config: PosGPTConfig) -> None:
    """Raise BadInput if a model reads a text's last token otherwise when it has read the others before, as where it writes answers.

    The second time, the text stands behind padding, as beside longer ones, and the cache has room for more.
    """
    names = list(dict.fromkeys(config.layer_position_embeddings))
    changes = {"position_embedding_type": names, "num_hidden_layers": len(names), "bottleneck_size": None}
    small = PosGPTConfig.from_dict(config.to_dict() | changes | {"vocab_size": 8})
    ids, named = torch.arange(2, 8)[None], " and ".join(map(repr, names))
    with torch.random.fork_rng(devices=()), torch.no_grad():
        with reraise_as_bad_input(f"a model with {named} fails", "correct the class.", Exception):
            model = PosGPTForCausalLM(small).eval()
            at_once, alone = model(ids).logits[:, -1:], []
            for padding, cache in (0, DynamicCache(config=small)), (2, StaticCache(config=small, max_cache_len=9)):
                row, mask = (pad(each, (padding, 0)) for each in (ids, torch.ones_like(ids)))
                model(row[:, :-1], attention_mask=mask[:, :-1], past_key_values=cache)
                alone.append(model(row[:, -1:], attention_mask=mask, past_key_values=cache).logits)
    for read, where in zip(alone, ("", " behind padding and with room in the cache"), strict=True):
        if not torch.allclose(at_once, read, rtol=1e-3, atol=1e-3 * float(at_once.std())):
            raise BadInput(
                f"a model with {named} reads a text's last token otherwise when the others are cached{where}, so it could"
                " not answer; take positions from what hooks are given, not from lengths."
            )


def check_hooks(encoding_class: type[PositionEncoding], config: PosGPTConfig) -> None:
    """Call every hook with two short texts; raise BadInput when one fails or returns other shapes than attention takes."""
    name, batch, length, hidden_size = encoding_class.__name__, 2, 5, config.hidden_size
    at, heads, width = torch.arange(length)[None], config.num_attention_heads, config.head_dim

    def call(hook: str, *inputs: object) -> Any:
        with reraise_as_bad_input(f"{name}.{hook} fails", "correct the class.", Exception):
            return getattr(encoding, hook)(*inputs)

    def check(hook: str, returned: Any, *wanted: list) -> None:
        returned = returned if isinstance(returned, tuple) else (returned,)
        shapes = [str(tuple(each.shape)) if isinstance(each, torch.Tensor) else str(each) for each in returned]
        # Any size of a dimension suits `any`, one vector per token a broadcast of 1.
        patterns = ["|".join(re.escape(str(each)).replace("any", r"\d+") for each in allowed) for allowed in wanted]
        if len(shapes) != len(patterns) or not all(map(re.fullmatch, patterns, shapes)):
            expected = ", ".join(str(allowed[0]) for allowed in wanted)
            raise BadInput(f"{name}.{hook} returned {', '.join(shapes)}, not {expected}; correct the class.")

    with torch.no_grad():
        with reraise_as_bad_input(f"{name} cannot be made", "correct the class.", Exception):
            encoding = encoding_class(config, 0)
        visible = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
        previous = find_previous(visible, 0, encoding.history) if encoding.history else None
        states, place = torch.randn(batch, length, hidden_size), Place(at, at, 0, visible, previous)
        check("number", call("number", at, at), [(1, length)], [(1, length)])
        tokens = states[..., : hidden_size - encoding.width(config)]
        check("embed", call("embed", tokens, at), [(batch, length, hidden_size)])
        place = place._replace(shared=call("prepare", states, place))
        earlier = states[:, None].expand(-1, encoding.history, -1, -1)
        check("mix", call("mix", states, earlier, place), [(batch, length, hidden_size)])
        place = place._replace(earlier=earlier if encoding.history else None)
        query = torch.randn(batch, heads, length, width)
        encoded = call("encode", query, query, states, place)
        of_any_width = f"({batch}, {heads}, {length}, any)"
        vectors = [of_any_width if encoding.is_wide else (batch, heads, length, width)]
        check("encode", encoded, vectors, vectors, [of_any_width if encoding.has_memo else None])
        biases = [(a, b, length, length) for a in (batch, 1) for b in (heads, 1)]
        check("relate", call("relate", *encoded, place), vectors, vectors, [*biases, None])
