"""Convert a checkpoint of the course's own code, a fork of minGPT, to a PosGPT folder, or back.

    posgpt convert vanilla.params runs/vanilla --vocabulary_file wiki.txt
    posgpt convert runs/vanilla vanilla.params

A checkpoint is what that code's `torch.save(model.state_dict(), ...)` writes, of a model with learned positions, with RoPE or
of the Perceiver; also of a compiled or distributed one, beside an optimizer's state, or as safetensors. Both models compute
the same: their logits are equal up to rounding.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file

from data_scripts.documents import build_corpus_tokenizer, load_corpus
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import check_is_new, write_atomically, write_folder_atomically
from data_scripts.options import Range, option, parse_options, shorten_error
from data_scripts.relations import BIRTHPLACE
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM
from posgpt.training.model_card import write_model_card
from posgpt.training.saved_models import load_model

# What the course calls the modules of a layer, besides queries, keys and values, which are one module here.
LAYER_NAMES = {
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.proj": "self_attn.o_proj",
    "mlp.0": "mlp.up_proj",
    "mlp.2": "mlp.down_proj",
}
# What the course's code leaves open, and what is fixed in it.
OPEN_SETTINGS = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
    "position_embedding_type", "bottleneck_size",
)  # fmt: skip
FIXED_SETTINGS = (
    "intermediate_size", "hidden_act", "bottleneck_type", "is_causal", "layer_norm_eps",
    *POSITION_EMBEDDINGS["rotary"].settings,
)  # fmt: skip
# The embedding of the symbols, by which a model is recognized; and the names of what torch and its tools wrap around a module.
FIRST = "tok_emb.weight"
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
VARIANTS = "learned positions, with RoPE, or with learned positions and the perceiver bottleneck"


@dataclass
class ConversionArguments:
    """What to convert, and where to write the result."""

    source: str = option("A checkpoint of the course's code, or a PosGPT folder.", positional=True)
    target: str = option("Where to write the other of the two; nothing may be there yet.", positional=True)
    vocabulary_file: str | None = option(
        "For a checkpoint: the corpus whose characters are its vocabulary (wiki.txt).", default=None
    )
    num_attention_heads: Annotated[int | None, Range(1)] = option(
        f"For a checkpoint, which does not say: attention heads per layer (default: {PosGPTConfig.num_attention_heads}).",
        default=None,
    )
    fused_qkv: bool = option(
        "For a folder: write queries, keys and values as one matrix `qkv`, as newer copies of CMU's code have them.",
        default=False,
    )


def list_blocks(config: PosGPTConfig) -> list[str]:
    """Return what the course calls each layer."""
    if config.bottleneck_size is None:
        return [f"blocks.{index}" for index in range(config.num_hidden_layers)]
    return ["down_block", *(f"blocks.{index}" for index in range(config.num_hidden_layers - 2)), "up_block"]


def view_as_course(model: PosGPTForCausalLM, fused_qkv: bool) -> dict[str, torch.Tensor]:
    """Return the model's parameters by the course's names; writing into one changes the model.

    Shapes are the course's, except that `qkv` is (heads, 3, head_dim, ...) where the course's is flat: (3 * hidden_size, ...).
    """
    config, decoder = model.config, model.model
    views = {"tok_emb.weight": decoder.embed_tokens.weight, "head.weight": model.lm_head.weight}
    views |= {f"ln_f.{name}": parameter for name, parameter in decoder.norm.named_parameters()}
    if config.position_embedding_type == "learned":
        views["pos_emb"] = decoder.position_embedding.table.weight[None]
    if config.bottleneck_size is not None:
        views["down_block.C"] = decoder.layers[0].basis.weight[None]
    for block, layer in zip(list_blocks(config), decoder.layers, strict=True):
        for theirs, ours in LAYER_NAMES.items():
            views |= {
                f"{block}.{theirs}.{name}": value for name, value in layer.get_submodule(ours).named_parameters()
            }
        for name, parameter in layer.self_attn.qkv_proj.named_parameters():
            if fused_qkv:
                heads = parameter.unflatten(0, (3, config.num_attention_heads, config.head_dim))
                views[f"{block}.attn.qkv.{name}"] = heads.transpose(0, 1)
            else:
                for theirs, part in zip(("query", "key", "value"), parameter.chunk(3), strict=True):
                    views[f"{block}.attn.{theirs}.{name}"] = part
    return {name: view.detach() for name, view in views.items()}


def flatten_qkv(name: str, view: torch.Tensor) -> torch.Tensor:
    """Return one of `view_as_course` in the course's shape."""
    return view.flatten(0, 2) if ".attn.qkv." in name else view


def compute_buffers(model: PosGPTForCausalLM) -> dict[str, torch.Tensor]:
    """Return what the course saves besides parameters: masks (1, 1, length, length), RoPE's cos and sin (length, pairs, 2)."""
    config, buffers = model.config, {}
    for block in list_blocks(config):
        latents = config.bottleneck_size if block.startswith("blocks.") else None
        length = latents or config.max_position_embeddings
        buffers[f"{block}.attn.mask"] = torch.ones(1, 1, length, length).tril()
        if config.position_embedding_type == "rotary":
            rotation = model.model.position_embedding.rotation(torch.empty(0), torch.arange(length)[None])
            buffers[f"{block}.attn.rope_cache"] = torch.stack([factor[0, :, ::2] for factor in rotation], dim=-1)
    return buffers


def find_states(content: Any) -> dict[str, dict[str, torch.Tensor]]:
    """Return the course's models in what was unpickled, by where they are: a training's own code saves more than the model.

    Names lose what wrappers put into them (torch.compile, DistributedDataParallel, FSDP), and what stands before `tok_emb`.
    """
    states, left, seen = {}, [("", content)], set[int]()
    while left:
        place, entry = left.pop()
        if id(entry) in seen:
            continue
        seen.add(id(entry))
        if isinstance(entry, list | tuple):
            entry = dict(enumerate(entry))
        if not isinstance(entry, dict):
            continue
        left += [(f"{place}[{name!r}]", value) for name, value in entry.items()]
        tensors = {
            ".".join(part for part in str(name).split(".") if part not in WRAPPERS): value
            for name, value in entry.items()
            if isinstance(value, torch.Tensor)
        }
        for prefix in [name.removesuffix(FIRST) for name in tensors if name == FIRST or name.endswith(f".{FIRST}")]:
            states[f"{place} {prefix}".strip()] = {
                name.removeprefix(prefix): value.detach() for name, value in tensors.items()
            }
    return states


def load_checkpoint(file: Path) -> dict[str, torch.Tensor]:
    """Load a checkpoint's tensors without running code that it may hold.

    Raises:
        BadInput: the file is damaged, or holds no model of the course's, or several.
    """
    advice = "write the model's weights alone with torch.save(model.state_dict(), FILE)."
    try:
        if file.suffix == ".safetensors":
            content = load_file(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    # A damaged file can make torch raise almost any exception.
    except Exception:
        raise BadInput(
            f"{file}: damaged, or no checkpoint of tensors and plain values, but a whole pickled module, say; copy it again, or"
            f" {advice}"
        ) from None
    states = find_states(content)
    if len(states) != 1:
        what = f"there are several models, {', '.join(sorted(states))}" if states else f"there is no {FIRST}"
        raise BadInput(f"{file}: {what}; {advice}")
    (state,) = states.values()
    # The starter code leaves the name of the Perceiver's attention to its students; these two are in use.
    return {name.replace(".cross_attn.", ".attn."): value for name, value in state.items()}


def read_config(state: dict[str, torch.Tensor], num_attention_heads: int) -> PosGPTConfig:
    """Return the configuration of the model that has these tensors.

    Raises:
        KeyError, ValueError, IndexError: a tensor that shows a size is missing or has too few dimensions.
        StrictDataclassError: the sizes are not compatible.
    """
    vocab_size, hidden_size = state["tok_emb.weight"].shape
    bottleneck_size = state["down_block.C"].shape[-2] if "down_block.C" in state else None
    is_rotary = bottleneck_size is None and "pos_emb" not in state
    num_blocks = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    return PosGPTConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=num_blocks if bottleneck_size is None else num_blocks + 2,
        num_attention_heads=num_attention_heads,
        max_position_embeddings=state["blocks.0.attn.mask"].shape[-1] if is_rotary else state["pos_emb"].shape[-2],
        position_embedding_type="rotary" if is_rotary else "learned",
        bottleneck_size=bottleneck_size,
        relations=BIRTHPLACE.to_config(),
    )


def build_model(file: Path, num_attention_heads: int) -> PosGPTForCausalLM:
    """Build the PosGPT that computes what the model of a checkpoint does.

    Raises:
        BadInput: the file is not a checkpoint, or the course's code has no model of this kind with this number of heads.
    """
    state, advice = load_checkpoint(file), f"give a checkpoint of the course's model with {VARIANTS}."
    try:
        config = read_config(state, num_attention_heads)
    except (KeyError, ValueError, IndexError) as error:
        what = (
            f"there is no {error.args[0]}"
            if isinstance(error, KeyError)
            else "tok_emb.weight, pos_emb or a mask is flat"
        )
        raise BadInput(f"{file}: {what}: {advice}") from None
    except StrictDataclassError as error:
        raise BadInput(f"{file}: {shorten_error(error.__cause__ or error)}") from None
    model = PosGPTForCausalLM(config)
    views = view_as_course(model, fused_qkv=any(".attn.qkv." in name for name in state))
    buffers = compute_buffers(model)
    missing, extra = views.keys() - state.keys(), state.keys() - (views | buffers).keys()
    for what, names in (("there is no", missing), ("there is also", extra)):
        if names:
            raise BadInput(f"{file}: {what} {', '.join(sorted(names)[:3])} ({len(names)} such tensors): {advice}")
    for name, view in views.items():
        tensor, shape = state[name], tuple(flatten_qkv(name, view).shape)
        if tensor.shape != shape or not tensor.is_floating_point():
            raise BadInput(
                f"{file}: {name} is {tuple(tensor.shape)} of {tensor.dtype}; with the other tensors' sizes it has to be"
                f" {shape} of torch.float32: {advice}"
            )
        if not tensor.isfinite().all():
            raise BadInput(f"{file}: {name} has numbers that are not finite; give a checkpoint from before they were.")
        view.copy_(tensor.reshape(view.shape))
    for name in (name for name in buffers if name.endswith("rope_cache") and name in state):
        cache, rotations = state[name], buffers[name]
        # With the order of operations, cos and sin differ by a millionth.
        if cache.shape != rotations.shape or not torch.allclose(cache.to(rotations), rotations, atol=1e-4):
            raise BadInput(
                f"{file}: {name} is not RoPE's for {num_attention_heads} heads, cos and sin of position *"
                " 10000^(-2j / head size); give the --num_attention_heads that it was trained with."
            )
    return model


def convert_checkpoint(file: Path, folder: Path, vocabulary_file: str, num_attention_heads: int) -> PosGPTForCausalLM:
    """Write a checkpoint as a PosGPT folder; return the model. Raises BadInput when one of the files is not what it should be."""
    model = build_model(file, num_attention_heads)
    tokenizer = build_corpus_tokenizer(load_corpus(vocabulary_file), model.config.max_position_embeddings)
    if len(tokenizer) != model.config.vocab_size:
        raise BadInput(
            f"{vocabulary_file}: its characters, □ and ⁇ are {len(tokenizer)} symbols, but {file} has"
            f" {model.config.vocab_size}; give the text whose characters it was pretrained with, the corpus's and no others."
        )
    with write_folder_atomically(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        write_model_card(unfinished, model, {"Origin": f"`{file.name}`, a checkpoint of the course's code"})
    return model


def convert_folder(folder: Path, file: Path, fused_qkv: bool) -> PosGPTForCausalLM:
    """Write a PosGPT as a checkpoint that the course's code loads; return the model.

    Raises:
        BadInput: the folder holds no PosGPT, or one that the course's code does not have.
    """
    model, _ = load_model(str(folder), dtype=torch.float32)
    config = model.config
    plain = PosGPTConfig(**{name: getattr(config, name) for name in OPEN_SETTINGS})
    foreign = [name for name in FIXED_SETTINGS if getattr(config, name) != getattr(plain, name)]
    positions = ("learned",) if config.bottleneck_size else ("learned", "rotary")
    if config.position_embedding_type not in positions:
        foreign = ["position_embedding_type"]
    if foreign:
        raise BadInput(
            f"{folder}: {foreign[0]} is {getattr(config, foreign[0])!r}; the course's code has no such model: give one with"
            f" {VARIANTS}, and defaults for the rest."
        )
    views = view_as_course(model, fused_qkv)
    state = {name: flatten_qkv(name, view).clone() for name, view in views.items()} | compute_buffers(model)
    with write_atomically(file, "wb") as unfinished:
        torch.save(state, unfinished)
    return model


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(ConversionArguments, argv)
    source, target = Path(arguments.source), check_is_new(arguments.target)
    if source.is_dir():
        if arguments.vocabulary_file or arguments.num_attention_heads:
            raise BadInput(
                f"{source}: a folder brings its own vocabulary and number of heads; leave out --vocabulary_file and"
                " --num_attention_heads."
            )
        model = convert_folder(source, target, arguments.fused_qkv)
    elif source.is_file():
        if not arguments.vocabulary_file or arguments.fused_qkv:
            raise BadInput(
                f"{source}: for a checkpoint, give --vocabulary_file with the corpus that it was pretrained on (wiki.txt),"
                " and no --fused_qkv."
            )
        heads = arguments.num_attention_heads or PosGPTConfig.num_attention_heads
        model = convert_checkpoint(source, target, arguments.vocabulary_file, heads)
    else:
        raise BadInput(
            f"{source}: no such file or folder; give a checkpoint of the course's code, or a PosGPT folder."
        )
    config = model.config
    print(
        f"Written: {target}, {config.position_embedding_type} positions, {config.num_hidden_layers} layers,"
        f" {config.num_attention_heads} heads per layer, {config.vocab_size} symbols, {model.num_parameters():,} parameters."
    )


if __name__ == "__main__":
    main()
