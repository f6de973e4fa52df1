"""Convert a checkpoint of the course's own code, a fork of minGPT, to a PosGPT folder, or back.

    posgpt convert vanilla.params runs/vanilla --vocabulary_file wiki.txt
    posgpt convert runs/vanilla vanilla.params

A checkpoint is what that code's `torch.save(model.state_dict(), ...)` writes, of a model with learned positions, with RoPE or
of the Perceiver; also of a compiled or distributed one, or as safetensors. Both models compute the same: their logits are equal
up to rounding.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from huggingface_hub.errors import StrictDataclassError

from data_scripts.documents import build_corpus_tokenizer, load_corpus
from data_scripts.errors import BadInput, reraise_as_bad_input
from data_scripts.files import check_is_new, write_atomically, write_folder_atomically
from data_scripts.options import Range, option, parse_options
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
VARIANTS = "learned positions, with RoPE, or with learned positions and the perceiver bottleneck"


@dataclass
class ConversionArguments:
    """What to convert, and where to write the result."""

    source: str = option("A checkpoint of the course's code, or a PosGPT folder.", positional=True)
    target: str = option("Where to write the other of the two; nothing may be there yet.", positional=True)
    vocabulary_file: str | None = option("For a checkpoint: the corpus of its vocabulary (wiki.txt).", default=None)
    num_attention_heads: Annotated[int | None, Range(1)] = option(
        f"For a checkpoint, which does not say: attention heads per layer (default: {PosGPTConfig.num_attention_heads}).",
        default=None,
    )


def list_blocks(config: PosGPTConfig) -> list[str]:
    """Return what the course calls each layer."""
    if config.bottleneck_size is None:
        return [f"blocks.{i}" for i in range(config.num_hidden_layers)]
    return ["down_block", *(f"blocks.{i}" for i in range(config.num_hidden_layers - 2)), "up_block"]


def view_as_course(model: PosGPTForCausalLM) -> dict[str, torch.Tensor]:
    """Return the model's parameters by the course's names and in its shapes; writing into one changes the model."""
    config, decoder = model.config, model.model
    views = {"tok_emb.weight": decoder.embed_tokens.weight, "head.weight": model.lm_head.weight}
    views |= {f"ln_f.{name}": parameter for name, parameter in decoder.norm.named_parameters()}
    if config.position_embedding_type == "learned":
        views["pos_emb"] = decoder.position_embedding.table.weight[None]
    if config.bottleneck_size is not None:
        views["down_block.C"] = decoder.layers[0].basis.weight[None]
    for block, layer in zip(list_blocks(config), decoder.layers, strict=True):
        for theirs, ours in LAYER_NAMES.items():
            for name, parameter in layer.get_submodule(ours).named_parameters():
                views[f"{block}.{theirs}.{name}"] = parameter
        for name, parameter in layer.self_attn.qkv_proj.named_parameters():
            for theirs, part in zip(("query", "key", "value"), parameter.chunk(3), strict=True):
                views[f"{block}.attn.{theirs}.{name}"] = part
    return {name: view.detach() for name, view in views.items()}


def compute_buffers(model: PosGPTForCausalLM) -> dict[str, torch.Tensor]:
    """Return what the course saves besides parameters: masks (1, 1, length, length), RoPE's cos and sin (length, pairs, 2)."""
    config, buffers = model.config, {}
    for block in list_blocks(config):
        latents = config.bottleneck_size if block.startswith("blocks.") else None
        length = latents or config.max_position_embeddings
        buffers[f"{block}.attn.mask"] = torch.ones(1, 1, length, length).tril()
        if config.position_embedding_type == "rotary":
            rotation = model.model.position_embedding(torch.empty(0), torch.arange(length)[None])
            buffers[f"{block}.attn.rope_cache"] = torch.stack([factor[0, :, ::2] for factor in rotation], dim=-1)
    return buffers


def load_checkpoint(file: Path, num_attention_heads: int) -> dict[str, torch.Tensor]:
    """Load a checkpoint's tensors without running code that it may hold.

    Names lose what wrappers put before `tok_emb`. The model may stand beside what else a run has saved.
    Newer copies of the course's code have queries, keys and values as one matrix `qkv`, head by head: it is split. Raises
    BadInput where the file is damaged, or holds no model of the course's, or several.
    """
    advice = "write the model's weights alone with torch.save(model.state_dict(), FILE)."
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    # A damaged file can make torch raise almost any exception.
    except Exception:
        raise BadInput(f"{file}: damaged, or no checkpoint of tensors alone; copy it again, or {advice}") from None
    entries = [content, *content.values()] if isinstance(content, dict) else []
    named = [(each, str(name)) for each in entries if isinstance(each, dict) for name in each]
    found = [(each, name.removesuffix("tok_emb.weight")) for each, name in named if name.endswith("tok_emb.weight")]
    if len(found) != 1:
        raise BadInput(f"{file}: there are {len(found)} models with a tok_emb.weight; {advice}")
    ((entry, prefix),) = found
    state = {}
    for name, tensor in ((name, value) for name, value in entry.items() if isinstance(value, torch.Tensor)):
        # The starter code leaves the name of the Perceiver's attention to its students; these two are in use.
        name = str(name).removeprefix(prefix).replace(".cross_attn.", ".attn.")
        if ".attn.qkv." in name and tensor.shape[0] % (3 * num_attention_heads) == 0:
            parts = tensor.unflatten(0, (num_attention_heads, 3, -1)).unbind(1)
            for theirs, part in zip(("query", "key", "value"), parts, strict=True):
                state[name.replace(".qkv.", f".{theirs}.")] = part.flatten(0, 1)
        else:
            state[name] = tensor.detach()
    return state


def build_model(file: Path, num_attention_heads: int) -> PosGPTForCausalLM:
    """Build the PosGPT that computes what the model of a checkpoint does. Raises BadInput where there is none."""
    state = load_checkpoint(file, num_attention_heads)
    blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
    problem, kinds = f"{file}: not the course's model with {VARIANTS}", (KeyError, ValueError, IndexError)
    with reraise_as_bad_input(problem, "give another checkpoint.", *kinds, StrictDataclassError):
        vocab_size, hidden_size = state["tok_emb.weight"].shape
        latents = state["down_block.C"].shape[-2] if "down_block.C" in state else None
        is_rotary = latents is None and "pos_emb" not in state
        config = PosGPTConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=len(blocks) if latents is None else len(blocks) + 2,
            num_attention_heads=num_attention_heads,
            max_position_embeddings=state["blocks.0.attn.mask"].shape[-1] if is_rotary else state["pos_emb"].shape[-2],
            position_embedding_type="rotary" if is_rotary else "learned",
            bottleneck_size=latents,
            relations=BIRTHPLACE.to_config(),
        )
        model = PosGPTForCausalLM(config)
    views, buffers = view_as_course(model), compute_buffers(model)
    for name in sorted(views.keys() | state.keys() - buffers.keys()):
        if name not in views or name not in state or state[name].shape != views[name].shape:
            raise BadInput(f"{file}: {name} does not fit; give a checkpoint of the course's model with {VARIANTS}.")
        if not state[name].isfinite().all():
            raise BadInput(f"{file}: {name} has numbers that are not finite; give a checkpoint from before they were.")
        views[name].copy_(state[name])
    for name in [name for name in buffers.keys() & state.keys() if name.endswith("rope_cache")]:
        # With the order of operations, cos and sin differ by a millionth.
        cache, own = state[name], buffers[name]
        if cache.shape != own.shape or not torch.allclose(cache.to(own), own, atol=1e-4):
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


def convert_folder(folder: Path, file: Path) -> PosGPTForCausalLM:
    """Write a PosGPT as a checkpoint that the course's code loads; return the model. Raises BadInput for one that it has not."""
    model, _ = load_model(str(folder), dtype=torch.float32)
    config = model.config
    plain = PosGPTConfig(**{name: getattr(config, name) for name in OPEN_SETTINGS})
    foreign = [name for name in FIXED_SETTINGS if getattr(config, name) != getattr(plain, name)]
    if config.position_embedding_type not in (("learned",) if config.bottleneck_size else ("learned", "rotary")):
        foreign = ["position_embedding_type"]
    if foreign:
        raise BadInput(
            f"{folder}: {foreign[0]} is {getattr(config, foreign[0])!r}; the course's code has no such model: give one with"
            f" {VARIANTS}, and defaults for the rest."
        )
    state = {name: view.clone() for name, view in view_as_course(model).items()} | compute_buffers(model)
    with write_atomically(file, "wb") as unfinished:
        torch.save(state, unfinished)
    return model


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(ConversionArguments, argv)
    source, target = Path(arguments.source), check_is_new(arguments.target)
    if source.is_dir():
        if arguments.vocabulary_file or arguments.num_attention_heads:
            raise BadInput(
                f"{source}: a folder says both itself; leave out --vocabulary_file and --num_attention_heads."
            )
        model = convert_folder(source, target)
    elif not source.exists():
        raise BadInput(f"{source}: no such file or folder; give the course's checkpoint, or a PosGPT folder.")
    elif arguments.vocabulary_file is None:
        raise BadInput(f"{source}: for a checkpoint, give --vocabulary_file, its corpus (wiki.txt).")
    else:
        heads = arguments.num_attention_heads or PosGPTConfig.num_attention_heads
        model = convert_checkpoint(source, target, arguments.vocabulary_file, heads)
    config = model.config
    print(
        f"Written: {target}, {config.position_embedding_type} positions, {config.num_hidden_layers} layers,"
        f" {config.num_attention_heads} heads per layer, {config.vocab_size} symbols, {model.num_parameters():,} parameters."
    )
