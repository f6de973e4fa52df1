"""Checkpoints of the course's own code, as PosGPT folders and back."""

import math
import pickle
import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluate_birthplace
from data_scripts.documents import build_corpus_tokenizer, load_corpus
from model_helpers import tiny_model, tokens
from modeling_posgpt import build_tokenizer
from posgpt import cli
from posgpt.extras import convert
from posgpt.extras.convert import build_model

WIDTH, HEADS, LENGTH, LATENTS = 32, 2, 96, 20
PAD, MASK = "□", "⁇"


# The course's model, written from its description: a minGPT whose module names and shapes are those of its checkpoints.


class CourseAttention(nn.Module):
    """Multi-head attention of `x` to `read`; `turns` (length, pairs, 2) are RoPE's cos and sin, if it has any."""

    def __init__(self, width, heads, length, rope=False, fused=False):
        super().__init__()
        self.heads, self.fused = heads, fused
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.key, self.query, self.value = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))
        if rope:
            speeds = 10000.0 ** (-2 * torch.arange(width // heads // 2) / (width // heads))
            angles = torch.outer(torch.arange(length), speeds)
            self.register_buffer("rope_cache", torch.stack([angles.cos(), angles.sin()], dim=-1))

    def turn(self, x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.view_as_complex(self.rope_cache[: x.shape[-2]])).flatten(-2)

    def forward(self, x, read=None):
        read = x if read is None else read
        if self.fused:
            q, k, v = self.qkv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, dim=-1)
        else:
            q, k, v = (
                project(source).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for project, source in ((self.query, x), (self.key, read), (self.value, read))
            )
        if hasattr(self, "rope_cache"):
            q, k = self.turn(q), self.turn(k)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(self.mask[:, :, : q.shape[-2], : k.shape[-2]] == 0, -1e10)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class CourseBlock(nn.Module):
    def __init__(self, width, heads, length, attention="attn", **options):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.add_module(attention, CourseAttention(width, heads, length, **options))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.0))
        self.attend = lambda *inputs: self.get_submodule(attention)(*inputs)

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class CourseDown(CourseBlock):
    """The latents `C` read the tokens."""

    def __init__(self, width, *arguments, latents, **options):
        super().__init__(width, *arguments, **options)
        self.C = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, latents, width)))

    def forward(self, x):
        latents = self.C + self.attend(self.ln1(self.C).expand(len(x), -1, -1), x)
        return latents + self.mlp(self.ln2(latents))


class CourseUp(CourseBlock):
    """The tokens read the latents."""

    def forward(self, x, tokens):
        tokens = tokens + self.attend(tokens, self.ln1(x))
        return tokens + self.mlp(self.ln2(tokens))


class CourseGPT(nn.Module):
    def __init__(self, symbols, variant="vanilla", layers=2, width=WIDTH, heads=HEADS, length=LENGTH, **options):
        super().__init__()
        self.length, self.is_perceiver = length, variant == "perceiver"
        self.tok_emb = nn.Embedding(symbols, width)
        if variant != "rope":
            self.pos_emb = nn.Parameter(torch.zeros(1, length, width))
        if self.is_perceiver:
            self.down_block = CourseDown(width, heads, length, latents=LATENTS, **options)
            self.blocks = nn.Sequential(*(CourseBlock(width, heads, LATENTS) for _ in range(layers - 2)))
            self.up_block = CourseUp(width, heads, length, **options)
        else:
            options["rope"] = variant == "rope"
            self.blocks = nn.Sequential(*(CourseBlock(width, heads, length, **options) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)

    def forward(self, ids):
        x = tokens = self.tok_emb(ids) + (self.pos_emb[:, : ids.shape[1]] if hasattr(self, "pos_emb") else 0)
        x = self.blocks(self.down_block(x) if self.is_perceiver else x)
        return self.head(self.ln_f(self.up_block(x, tokens) if self.is_perceiver else x))


VARIANTS = {
    "vanilla": {},
    "rope": {"variant": "rope"},
    "perceiver of two layers": {"variant": "perceiver", "layers": 2},
    "perceiver, attention called cross_attn": {"variant": "perceiver", "layers": 3, "attention": "cross_attn"},
    "vanilla, qkv": {"fused": True},
    "rope, qkv": {"variant": "rope", "fused": True},
    "vanilla of another size": {"layers": 1, "width": 48, "heads": 3, "length": 40},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=list(VARIANTS))


def draw_weights(model):
    """Weights so large that differences in the arithmetic show."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    return model.eval()


def list_symbols(text):
    """The course's vocabulary of its corpus."""
    return [PAD, MASK, *sorted(set(text))]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "wiki.txt"
    file.write_text("Ada Example. Born in Øresund (12 May 1890)…\nZoë Ek.\tPlayed the 🎻 in 東京.\n", encoding="utf-8")
    return file


@pytest.fixture
def save(tmp_path, corpus):
    """Save a course model with weights drawn at random as `vanilla.params`; return the model and the file."""

    def save_model(change=lambda state: state, **options):
        model = draw_weights(CourseGPT(len(list_symbols(corpus.read_text("utf-8"))), **options))
        torch.save(change(model.state_dict()), tmp_path / "vanilla.params")
        return model, tmp_path / "vanilla.params"

    return save_model


@pytest.fixture
def refused(run, tmp_path):
    """Run `posgpt convert`; check that it stops with one line that matches and names a file, and leaves all as it was."""

    def run_and_check(match, *arguments, names):
        before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
        with pytest.raises(SystemExit, match=match) as stop:
            run(convert, *arguments)
        message = stop.value.code
        assert message.startswith("error: ") and "\n" not in message and str(names) in message
        assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before

    return run_and_check


def check_vocabulary(file):
    symbols, tokenizer = list_symbols(file.read_text("utf-8")), build_corpus_tokenizer(load_corpus(file), 128)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == symbols


def test_the_vocabulary_is_the_courses(corpus):
    check_vocabulary(corpus)


def test_the_vocabulary_of_the_courses_corpus_is_the_courses(real_data):
    check_vocabulary(real_data / "wiki.txt")


@every_variant
@torch.no_grad()
def test_logits_are_equal_and_the_way_back_is_bit_for_bit(run, tmp_path, corpus, save, options):
    course, file = save(**options)
    heads = ["--num_attention_heads", options.get("heads", HEADS)]
    assert "Written" in run(convert, file, "--vocabulary_file", corpus, tmp_path / "model", *heads)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.float32
    assert len(model.ask(["Ada Example"], AutoTokenizer.from_pretrained(tmp_path / "model"))) == 1
    assert "`vanilla.params`, a checkpoint of the course's code" in (tmp_path / "model" / "README.md").read_text(
        "utf-8"
    )
    for length in (1, LATENTS - 1, LATENTS + 3, course.length):
        ids = tokens(3, length, seed=length) % course.tok_emb.num_embeddings
        expected = course(ids)
        assert expected.std() > 0.3
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-5, rtol=1e-5)

    back = tmp_path / "back.params"
    run(convert, tmp_path / "model", back)
    plain = {name: options[name] for name in options if name not in ("attention", "fused")}
    again = CourseGPT(course.tok_emb.num_embeddings, **plain).eval()
    again.load_state_dict(torch.load(back, weights_only=True), strict=True)
    # Queries, keys and values of each head come back as matrices of their own.
    torch.testing.assert_close(again(ids), expected, atol=1e-5, rtol=1e-5)
    for parameter, given in (
        zip(again.parameters(), course.parameters(), strict=True) if "fused" not in options else ()
    ):
        assert torch.equal(parameter, given)
    for buffer, expected in zip(again.buffers(), course.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, atol=2e-6, rtol=0)


def rename(pattern, replacement):
    """A change of a state dict: another name for each of its tensors."""
    return lambda state: {re.sub(pattern, replacement, name): tensor for name, tensor in state.items()}


def drop_buffers(state):
    """No rotations, and a mask of another shape."""
    kept = {name: tensor for name, tensor in state.items() if not name.endswith("rope_cache")}
    return kept | {name: kept[name][0, 0].bool() for name in kept if name.endswith("mask")}


SAVED = {
    "compiled, then distributed": rename("^", "module._orig_mod."),
    "a part of another module": rename("^", "net.transformer."),
    "beside an optimizer": lambda state: {
        "model": rename("^", "module.")(state),
        "optimizer": {"state": {}},
        "epoch": 3,
    },
    "parameters": lambda state: {name: nn.Parameter(tensor) for name, tensor in state.items()},
    "no buffers, as safetensors": drop_buffers,
}


@pytest.mark.parametrize("variant", ["rope", "perceiver"])
@pytest.mark.parametrize("change", SAVED.values(), ids=list(SAVED))
@torch.no_grad()
def test_a_model_is_found_in_what_a_trainings_own_code_saves(save, change, variant):
    course, file = save(change, variant=variant, layers=3)
    if change is drop_buffers:
        weights, file = torch.load(file), file.with_suffix(".safetensors")
        save_file(weights, file)
    model, ids = build_model(file, HEADS).eval(), tokens(2, 9) % 30
    torch.testing.assert_close(model(ids).logits, course(ids), atol=1e-5, rtol=1e-5)


def train_on_pairs(course, lines, symbols, steps):
    """Finetune as the course does: `question⁇place⁇`, with loss on the place and both masks."""
    index = {symbol: id for id, symbol in enumerate(symbols)}
    rows = [line.replace("\t", MASK) + MASK for line in lines]
    length = max(map(len, rows))
    ids = torch.tensor([[index[symbol] for symbol in row.ljust(length, PAD)] for row in rows])
    labels = ids.masked_fill((ids == index[MASK]).cumsum(1) == 0, 0)
    optimizer = torch.optim.AdamW(course.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(course(ids[:, :-1]).flatten(0, 1), labels[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def predict_as_the_course(course, lines, symbols):
    """Question and mask, 32 symbols written greedily; the prediction is what stands between the first two masks.

    The course asks one line at a time. Nothing looks ahead, so rows that have symbols on their right give the same.
    """
    prompts = [line.split("\t")[0] + MASK for line in lines]
    ends = torch.tensor([len(prompt) for prompt in prompts])
    length = int(ends.max()) + 32
    assert length <= course.length
    ids = torch.tensor([[symbols.index(symbol) for symbol in prompt.ljust(length, PAD)] for prompt in prompts])
    rows = torch.arange(len(lines))
    for step in range(32):
        ids[rows, ends + step] = course(ids)[rows, ends + step - 1].argmax(-1)
    return ["".join(symbols[id] for id in row).split(MASK)[1] for row in ids.tolist()]


@pytest.mark.parametrize("variant", ["vanilla", "rope", "perceiver"])
def test_evaluation_gives_the_courses_predictions_line_by_line(run, tmp_path, world, variant):
    symbols = list_symbols((world / "wiki.txt").read_text("utf-8"))
    lines = (world / "birth_places_train.tsv").read_text("utf-8").splitlines()[:14]
    torch.manual_seed(0)
    course = CourseGPT(len(symbols), variant, layers=3 if variant == "perceiver" else 2)
    train_on_pairs(course, lines[:8], symbols, 60)
    expected = predict_as_the_course(course.eval(), lines, symbols)
    right = sum(line.endswith("\t" + place) for line, place in zip(lines, expected, strict=True))
    assert len(set(expected)) > 3 and 3 < right < len(lines)

    torch.save(course.state_dict(), tmp_path / "vanilla.params")
    (tmp_path / "questions.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run(
        cli, "convert", tmp_path / "vanilla.params", "--vocabulary_file", world / "wiki.txt", tmp_path / "model",
        "--num_attention_heads", HEADS,
    )  # fmt: skip
    printed = run(
        evaluate_birthplace, "--model_name_or_path", tmp_path / "model", "--test_file", tmp_path / "questions.tsv",
        "--predictions_file", tmp_path / "predictions",
    )  # fmt: skip
    assert (tmp_path / "predictions").read_text("utf-8").splitlines() == expected
    assert f"{right} of {len(lines)}" in printed


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


BAD_FILES = {
    "pickle with code": lambda file, state: torch.save(state | {"ln_f.bias": Harmful(file.with_name("harm"))}, file),
    "old pickle with code": lambda file, state: file.write_bytes(pickle.dumps(Harmful(file.with_name("harm")))),
    "text": lambda file, state: file.write_text("Where was Ada Example born?\tRome\n"),
    "whole module": lambda file, state: torch.save(nn.Linear(2, 2), file),
}


@pytest.mark.parametrize("write", BAD_FILES.values(), ids=list(BAD_FILES))
def test_what_is_no_checkpoint_is_refused_and_none_of_its_code_runs(refused, tmp_path, corpus, write):
    file = tmp_path / "vanilla.params"
    write(file, CourseGPT(30).state_dict())
    refused("damaged, or no checkpoint", file, tmp_path / "model", "--vocabulary_file", corpus, names=file)


def replace(**tensors):
    """A change of a state dict: tensors in place of those whose names, with _ for each full stop, are given; None: none."""

    def change(state):
        names = {name.replace(".", "_"): name for name in state}
        changed = state | {names.get(key, key): tensor for key, tensor in tensors.items()}
        return {name: tensor for name, tensor in changed.items() if tensor is not None}

    return change


ROPE = {"variant": "rope"}
BAD_STATES = {
    "missing": ({}, replace(blocks_1_ln2_bias=None), "blocks.1.ln2.bias does not fit"),
    "no symbols": ({}, replace(tok_emb_weight=None), "there are 0 models"),
    "no masks": (ROPE, replace(blocks_0_attn_mask=None), "not the course's model .*blocks.0.attn.mask"),
    "two models": ({}, lambda state: {"model": state, "ema": dict(state)}, "there are 2 models .*weights alone"),
    "extra": ({}, replace(extra=torch.ones(2)), "extra does not fit"),
    "both positions": (ROPE, replace(pos_emb=torch.zeros(1, LENGTH, WIDTH)), "rope_cache does not fit"),
    "narrow MLP": ({}, replace(blocks_0_mlp_0_bias=torch.ones(64)), "blocks.0.mlp.0.bias does not fit"),
    "not finite": ({}, replace(ln_f_bias=torch.full((32,), torch.nan)), "ln_f.bias has numbers that are not finite"),
    "flat": ({}, replace(pos_emb=torch.ones(9)), "not the course's model"),
    "other heads": (ROPE | {"heads": 4}, lambda state: state, "rope_cache is not RoPE's for 2 heads"),
}


@pytest.mark.parametrize("options, change, match", BAD_STATES.values(), ids=list(BAD_STATES))
def test_checkpoints_of_another_model_are_refused(refused, tmp_path, corpus, save, options, change, match):
    _, file = save(change, **options)
    arguments = ["--vocabulary_file", corpus, "--num_attention_heads", HEADS]
    refused(match, file, *arguments, tmp_path / "model", names=file)


def test_arguments_that_do_not_go_together_are_refused(refused, tmp_path, corpus, save):
    _, file = save()
    vocabulary, target = ["--vocabulary_file", corpus], tmp_path / "model"
    heads = [*vocabulary, "--num_attention_heads", 5]
    refused("is not a multiple of num_attention_heads", file, target, *heads, names=file)
    refused("give --vocabulary_file", file, target, names=file)
    refused("no such file or folder", tmp_path / "rope.params", target, *vocabulary, names="rope.params")
    refused("no such file", file, target, "--vocabulary_file", tmp_path / "wiki", names=tmp_path / "wiki")
    refused("is already there", file, corpus, *vocabulary, names=corpus)
    refused("the following arguments are required: target", file, *vocabulary, names="target")
    save_folder(tmp_path / "folder")
    refused("is already there", tmp_path / "folder", corpus, names=corpus)
    for option in (vocabulary, ["--num_attention_heads", 4]):
        refused("leave out --vocabulary_file", tmp_path / "folder", target, *option, names="folder")
    (tmp_path / "other.txt").write_text("Ada Example.\n")
    refused(f"are 14 symbols, but .* has {len(list_symbols(corpus.read_text('utf-8')))}", file, target, "--vocabulary_file",
            tmp_path / "other.txt", "--num_attention_heads", HEADS, names=tmp_path / "other.txt")  # fmt: skip


def save_folder(folder, positions="learned", **settings):
    tokenizer = build_tokenizer(["Ada"], 32)
    tiny_model(positions, vocab_size=len(tokenizer), num_hidden_layers=3, **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


FOREIGN = {
    "concatenated": ({"positions": "concatenated"}, "position_embedding_type is 'concatenated'"),
    "rotary latents": ({"positions": "rotary", "bottleneck_size": 8}, "position_embedding_type is 'rotary'"),
    "strided": ({"bottleneck_size": 8, "bottleneck_type": "strided"}, "bottleneck_type is 'strided'"),
    "ReLU": ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
    "not causal": ({"is_causal": False}, "is_causal is False"),
}


@pytest.mark.parametrize("settings, match", FOREIGN.values(), ids=list(FOREIGN))
def test_models_that_the_courses_code_does_not_have_are_refused(refused, tmp_path, settings, match):
    save_folder(tmp_path / "model", **settings)
    match += ".*learned positions, with RoPE, or"
    refused(match, tmp_path / "model", tmp_path / "vanilla.params", names=tmp_path / "model")
