"""What holds for every position encoding in the table; a new one is tested by being there. `-k NAME` tests one."""

import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.export import Dim
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, StaticCache

import reference_positions
from data_scripts.errors import BadInput
from model_helpers import SIZES, tiny_model, tokens
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM, PositionEncoding, register
from modeling_posgpt.cache import CACHE
from modeling_posgpt.tokenization_posgpt import build_tokenizer
from posgpt import cli

every_encoding = pytest.mark.parametrize("name", POSITION_EMBEDDINGS)
# Encodings of other hooks above and below each other; the last two embed nothing of their own.
SUMS = [
    "rotary+fox",
    "rotary+ssmax",
    "learned+canon+cope+fox",
    ["rotary+canon", "alibi"],
    ["learned+t5", "learned+alibi"],
    ["canon", "path"],
]
MIXES = [["rotary", "t5"], ["rotary", "none"], ["none", "canon"], ["learned", "fox"], ["pope", "alibi"], *SUMS]
every_mix = pytest.mark.parametrize("name", [*POSITION_EMBEDDINGS, *MIXES], ids=str)


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@every_mix
@torch.no_grad()
def test_it_computes_the_papers_formula(name):
    ids, expected = tokens(1, 24), None
    for attention in ("eager", "sdpa"):
        model = tiny_model(name, attention)
        expected = reference_positions.compute_logits(model, ids[0]) if expected is None else expected
        close(model(ids).logits[0], expected)


# Settings that reach parts of a formula which the default leaves unused in so short a text.
@pytest.mark.parametrize("name, settings", [("ssmax", {"ssmax_bias": True}), ("fire", {"fire_threshold": 16})])
@torch.no_grad()
def test_it_computes_the_papers_formula_with_other_settings(name, settings):
    ids, model = tokens(1, 24), tiny_model(name, **settings)
    close(model(ids).logits[0], reference_positions.compute_logits(model, ids[0]))


@every_mix
@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("chunks", [[4, *[1] * 8], [5, 4, 3]], ids=["tokens", "chunks"])
@torch.no_grad()
def test_cached_steps_and_padded_rows_read_like_the_whole(name, kind, chunks):
    model, rows = tiny_model(name), [tokens(12), tokens(9, seed=1)]
    ids = pad_sequence(rows, batch_first=True, padding_side="left")
    mask, begin, read = (ids > 1).long(), 0, []
    cache = StaticCache(config=model.config, max_cache_len=16) if kind == "static" else None
    for length in chunks:
        end = begin + length
        output = model(ids[:, begin:end], attention_mask=mask[:, :end], **{CACHE: cache}, use_cache=True)
        cache, begin = output.get(CACHE), end
        read.append(output.logits)
    for row, logits in zip(rows, torch.cat(read, 1), strict=True):
        close(logits[12 - len(row) :], model(row[None]).logits[0])


@every_mix
@pytest.mark.parametrize("kind", ["dynamic", "static"])
@torch.no_grad()
def test_cached_texts_may_have_padding_inside(name, kind):
    """As those of several turns have: each turn of a batch is padded by itself."""
    model, ids, mask = tiny_model(name), tokens(2, 12), torch.ones(2, 12, dtype=torch.long)
    mask[0, 3:5] = 0
    whole = model(ids, attention_mask=mask).logits
    cache = (
        StaticCache(config=model.config, max_cache_len=16) if kind == "static" else DynamicCache(config=model.config)
    )
    for begin, end in ((0, 6), (6, 11), (11, 12)):
        read = model(ids[:, begin:end], attention_mask=mask[:, :end], **{CACHE: cache}).logits
        close(read[mask[:, begin:end].bool()], whole[:, begin:end][mask[:, begin:end].bool()])


@every_mix
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_packed_rows_and_windows_do_not_see_each_other(name, attention):
    model = tiny_model(name, attention)
    rows = [tokens(length, seed=length) for length in (5, 1, 9, 3)]
    position_ids = torch.cat([torch.arange(len(row)) for row in rows])[None]
    packed = model(torch.cat(rows)[None], position_ids=position_ids, use_cache=False).logits[0]
    close(packed, torch.cat([model(row[None]).logits[0] for row in rows]))
    # Windows go on where the title ends; each sees the title and itself.
    title, *windows = rows
    owner = torch.cat([torch.full((len(row),), number) for number, row in enumerate(rows)])
    positions = torch.cat([torch.arange(5), *(5 + torch.arange(len(each)) for each in windows)])[None]
    visible = ((owner[:, None] == owner) | (owner == 0)).tril()[None, None]
    logits = model(torch.cat(rows)[None], attention_mask=visible, position_ids=positions, use_cache=False).logits[0]
    for number, window in enumerate(windows, start=1):
        close(logits[owner == number], model(torch.cat([title, window])[None]).logits[0, 5:])


@every_encoding
@torch.no_grad()
def test_bf16_reads_far_positions_as_well_as_near_ones(name):
    model, positions, errors = tiny_model(name), torch.arange(12)[None], []
    if POSITION_EMBEDDINGS[name].is_bounded:
        with pytest.raises(ValueError, match="positions end at max_position_embeddings = 32"):
            model(tokens(1, 12), position_ids=positions + 99_988)
        return
    for shift in (0, 99_988):
        expected = model.float()(tokens(1, 12), position_ids=positions + shift).logits
        rounded = tiny_model(name).bfloat16()(tokens(1, 12), position_ids=positions + shift).logits
        errors.append((rounded.float() - expected).norm() / expected.norm())
    assert errors[1] < 2 * errors[0] + 0.01


@torch.no_grad()
def test_trained_frequencies_stay_precise_in_half_precision(tmp_path):
    ids = tokens(1, 500)
    for name in ("rotary", "grape_m", "grape_m+ssmax"):
        torch.manual_seed(0)
        config = PosGPTConfig(
            position_embedding_type=name, **SIZES | {"max_position_embeddings": 512, "initializer_range": 0.5}
        )
        model = PosGPTForCausalLM(config).eval()
        model.save_pretrained(tmp_path / name)
        expected = model(ids).logits[0, -50:]
        loaded = PosGPTForCausalLM.from_pretrained(tmp_path / name, dtype=torch.bfloat16)
        built = PosGPTForCausalLM._from_config(config, dtype=torch.bfloat16).eval()
        built.load_state_dict(
            {key: value.to(built.state_dict()[key].dtype) for key, value in model.state_dict().items()}
        )
        for rounded in (loaded, built, model.bfloat16()):
            assert (rounded(ids).logits[0, -50:].float() - expected).norm() < 0.05 * expected.norm()


@torch.no_grad()
def test_a_mask_that_takes_a_little_from_scores_hides_nothing():
    ids = tokens(1, 9)
    hidden = torch.full((9, 9), float("-inf")).triu(1)[None, None]
    for name in ("fox", "canon", "alibi"):
        model = tiny_model(name)
        # The same for all keys, which softmax ignores.
        close(model(ids, attention_mask=hidden - 0.1).logits, model(ids).logits)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("fox", "canon") else pytest.mark.slow) for name in POSITION_EMBEDDINGS],
)
@torch.no_grad()
def test_an_exported_model_reads_batches_of_any_size_and_length(name):
    model = tiny_model(name)
    ids = pad_sequence([tokens(9), tokens(6, seed=1)], batch_first=True, padding_side="left")
    inputs = {"input_ids": ids, "attention_mask": (ids > 1).long(), "use_cache": False}
    shape = {0: Dim("batch"), 1: Dim("length", max=32)}
    shapes = {"input_ids": shape, "attention_mask": shape, "use_cache": None}
    exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes).module()
    ids = pad_sequence([tokens(7), tokens(13), tokens(2)], batch_first=True, padding_side="left")
    inputs = {"input_ids": ids, "attention_mask": (ids > 1).long(), "use_cache": False}
    real = inputs["attention_mask"].bool()
    close(exported(**inputs)["logits"][real], model(**inputs).logits[real])


@every_mix
def test_both_kinds_of_gradient_checkpointing_give_the_same_gradients(name):
    gradients = []
    for reentrant in (None, False, True):
        model = tiny_model(name, embd_pdrop=0, resid_pdrop=0, attention_dropout=0).train()
        if reentrant is not None:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model(tokens(2, 12), labels=tokens(2, 12)).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for parameter, gradient in gradients[0].items():
        assert gradient is not None and gradient.abs().sum() > 0, parameter
        for other in gradients[1:]:
            close(other[parameter], gradient, 1e-4)


@every_mix
def test_beam_search_keeps_each_beams_own_cache(name):
    model = tiny_model(name)
    settings = {"max_new_tokens": 6, "num_beams": 3, "do_sample": False, "eos_token_id": None}
    cached, whole = (model.generate(tokens(2, 6), use_cache=use_cache, **settings) for use_cache in (True, False))
    assert torch.equal(cached, whole)


@pytest.mark.parametrize("name", ["alibi", "shaw", "xpos"])
@torch.no_grad()
def test_generation_with_a_static_cache_knows_padding_inside(name):
    model, ids, mask = tiny_model(name), tokens(2, 8), torch.ones(2, 8, dtype=torch.long)
    mask[0, 3:5] = 0
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "disable_compile": True}
    dynamic, static = (
        model.generate(ids, attention_mask=mask, cache_implementation=kind, **settings) for kind in (None, "static")
    )
    assert torch.equal(dynamic, static)


@every_mix
@pytest.mark.parametrize("kind", [DynamicCache, StaticCache])
@torch.no_grad()
def test_a_turn_that_is_padded_on_the_left_is_read_after_a_cache(name, kind):
    model, first, second = tiny_model(name), tokens(2, 6, seed=1), tokens(2, 5, seed=2)
    whole = torch.cat([first, second], 1)
    mask = torch.ones_like(whole)
    mask[0, 6:9] = 0
    # As `generate` numbers them, where padding is 0.
    positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, 0)
    cache = kind(config=model.config, **({"max_cache_len": 16} if kind is StaticCache else {}))
    expected = model(whole, attention_mask=mask, use_cache=False).logits[:, -2:]
    model(first, past_key_values=cache)
    read = model(second, attention_mask=mask, position_ids=positions[:, 6:], past_key_values=cache).logits[:, -2:]
    close(read, expected)


def test_models_of_half_precision_are_trained_with_finite_gradients():
    for name in ("selective_rope", "rotary"):
        model = tiny_model(name).half().train()
        model(tokens(2, 12), labels=tokens(2, 12)).loss.backward()
        assert all(each.grad.isfinite().all() for each in model.parameters() if each.grad is not None), name


def test_drawn_positions_take_masks_of_four_dimensions():
    model, mask = tiny_model("randomized+alibi").train(), torch.ones(2, 1, 8, 8, dtype=torch.bool).tril()
    assert model(tokens(2, 8), attention_mask=mask).logits.isfinite().all()


def test_a_configuration_whose_encoding_is_changed_can_be_saved(tmp_path):
    config = PosGPTConfig()
    config.position_embedding_type = "t5"
    config.save_pretrained(tmp_path)
    assert (
        PosGPTConfig.from_pretrained(tmp_path).t5_num_buckets
        == PosGPTConfig(position_embedding_type="t5").t5_num_buckets
    )


def test_rotary_positions_can_be_left_out_of_a_saved_model(tmp_path):
    tiny_model("rotary").save_pretrained(tmp_path)
    without = PosGPTForCausalLM.from_pretrained(tmp_path, position_embedding_type="none")
    assert without.config.position_embedding_type == "none" and without.config.rope_parameters is None


REFUSED = [
    (
        {"attention": "flash_attention_2"},
        "does not support Flash Attention",
        "alibi cope dape fire fox kerple path pope relative_bias selective_rope shaw t5 xpos",
    ),
    ({"bottleneck_size": 4}, "bottleneck", "canon fox path randomized selective_rope"),
    ({"is_causal": False}, "is_causal", "canon cope fox path selective_rope ssmax xpos"),
]


@every_encoding
@pytest.mark.parametrize("settings, message, names", REFUSED, ids=["flash", "bottleneck", "acausal"])
def test_what_it_cannot_do_is_refused(name, settings, message, names):
    if name in names.split():
        with pytest.raises(Exception) as caught:
            tiny_model(name, **settings)
        assert message in str(caught.value.__cause__ or caught.value)
    elif "attention" in settings:
        # Flash Attention is not installed here.
        assert tiny_model(name)._supports_flash_attn
    else:
        tiny_model(name, **settings)


@every_mix
@torch.no_grad()
def test_a_saved_model_has_the_files_of_its_own_encodings(name, tmp_path):
    model = tiny_model(name)
    model.save_pretrained(tmp_path)
    close(PosGPTForCausalLM.from_pretrained(tmp_path)(tokens(1, 9)).logits, model(tokens(1, 9)).logits)
    modules = {each.__module__.rpartition(".")[2] for each in model.config.position_encodings}
    used = {"positions_dape": "positions_kerple"}
    used |= dict.fromkeys(["positions_grape_m", "positions_selective_rope", "positions_xpos"], "positions_rotary")
    saved = {file.stem for file in tmp_path.glob("positions_*.py")}
    assert saved == modules | {used[each] for each in modules & used.keys()}


PLUG_IN = """
from modeling_posgpt import PositionEncoding, Setting, register


@register("plug_in")
class Distances(PositionEncoding):
    settings = {"plug_in_slope": Setting(0.5, "For plug_in positions: the slope.")}

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.slope, self.num_heads = config.plug_in_slope, config.num_attention_heads

    def relate(self, query, key, memo, place):
        return query, key, -self.slope * place.distances()[:, None].expand(-1, self.num_heads, -1, -1)
"""
# What a saved model would not find elsewhere.
LOST = {
    "modeling_posgpt": "import modeling_posgpt",
    "PosGPTConfig": "from modeling_posgpt.configuration_posgpt import PosGPTConfig",
    "Place": "try:\n    from modeling_posgpt import Place\nexcept ImportError:\n    pass",
    "plug_in_file": "def late():\n    import plug_in_file",
    "half": "from helpers import half",
}
ELSEWHERE = """
import json, sys
sys.modules |= {name: None for name in ("modeling_posgpt", "posgpt", "data_scripts")}
import torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
logits = {}
for folder in sys.argv[1:]:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    logits[folder] = model(torch.arange(2, 12)[None]).logits[0, -1].tolist()
print(json.dumps(logits))
"""


@torch.no_grad()
def test_a_model_with_a_file_from_outside_loads_where_the_package_is_missing(tmp_path, monkeypatch):
    from posgpt.imports import import_file
    from posgpt.training.encodings import check_imported

    (tmp_path / "plug_in_file.py").write_text(PLUG_IN)
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    before, expected = dict(POSITION_EMBEDDINGS), {}
    try:
        import_file(tmp_path / "plug_in_file.py")
        # What was trained with is saved, not what the file has become.
        (tmp_path / "plug_in_file.py").write_text("raise")
        for number, name in enumerate(["plug_in", *MIXES, ["rotary", "plug_in"]]):
            model, folder = tiny_model(name), str(tmp_path / f"model_{number}")
            model.save_pretrained(folder)
            expected[folder] = model(torch.arange(2, 12)[None]).logits[0, -1]
        check_imported(model.config)
        (tmp_path / "helpers").mkdir()
        (tmp_path / "helpers" / "__init__.py").write_text("half = 0.5")
        monkeypatch.syspath_prepend(tmp_path)
        for number, (lost, line) in enumerate(LOST.items()):
            name = f"lost_{number}"
            (tmp_path / f"{name}.py").write_text(PLUG_IN.replace("plug_in", name) + line)
            import_file(tmp_path / f"{name}.py")
            with pytest.raises(BadInput, match=f"no model could be saved: {name}.py imports {lost},"):
                check_imported(tiny_model(name).config)
    finally:
        POSITION_EMBEDDINGS.clear()
        POSITION_EMBEDDINGS.update(before)
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": ""}
    command = [sys.executable, "-c", ELSEWHERE, *expected]
    printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    for folder, logits in json.loads(printed.stdout.splitlines()[-1]).items():
        close(torch.tensor(logits), expected[folder])


def test_the_file_of_an_encoding_in_a_saved_model_can_be_imported(tmp_path, monkeypatch):
    from posgpt.imports import import_file, list_imports
    from posgpt.training.saved_models import load_config

    (tmp_path / "plain_file.py").write_text(PLUG_IN.replace("plug_in", "plain"))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(POSITION_EMBEDDINGS)
    try:
        # As a notebook imports it. What was trained with is saved, not what the file has become.
        importlib.import_module("plain_file")
        # So runs record it, and what a study starts imports it.
        assert str(tmp_path / "plain_file.py") in list_imports()
        (tmp_path / "plain_file.py").write_text("raise")
        tiny_model("plain").save_pretrained(tmp_path / "model")
        del sys.modules["plain_file"], POSITION_EMBEDDINGS["plain"]
        import_file(tmp_path / "model" / "plain_file.py")
        PosGPTForCausalLM.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "again")
        saved, again = ((tmp_path / each / "plain_file.py").read_text() for each in ("model", "again"))
        assert saved == again and "class Distances" in saved
        assert load_config(str(tmp_path / "model"), {}).position_embedding_type == "plain"
        (tmp_path / "model" / "plain_file.py").write_text(saved + "# edited\n")
        with pytest.raises(
            BadInput, match="model/plain_file.py: the model was trained with it, and what is imported di"
        ):
            load_config(str(tmp_path / "model"), {})
    finally:
        POSITION_EMBEDDINGS.clear()
        POSITION_EMBEDDINGS.update(before)


@pytest.mark.parametrize(
    "name, code, match",
    [
        ("mine_bad.py", "import nothing_like_this", "mine_bad.py: cannot be imported"),
        ("mine_empty.py", "x = 1", "registers no position encoding"),
        ("json.py", PLUG_IN, "'json' is no name for a module"),
        ("my-own.py", PLUG_IN, "'my-own' is no name for a module"),
        ("mine_none.py", None, "mine_none.py: no such file"),
        (None, None, "--import needs a value"),
    ],
)
def test_a_file_of_encodings_that_is_none_is_refused_in_one_line(run, tmp_path, name, code, match):
    if code:
        (tmp_path / name).write_text(code)
    given = [tmp_path / name] if name else []
    with pytest.raises(SystemExit, match=f"^error: [^\n]*{match}[^\n]*$"):
        run(cli, "world", "--output_dir", tmp_path / "world", "--import", *given)
    assert not (tmp_path / "world").exists()


@pytest.mark.parametrize(
    "hook, returned, message",
    [
        ("relate", "query, key, place.distances()", r"Wrong.relate returned .*\(1, 5, 5\), not .*\(2, 4, 5, 5\)"),
        ("encode", "query, key[..., :4], None", r"Wrong.encode returned .*\(2, 4, 5, 4\), None, not .*\(2, 4, 5, 8\)"),
        ("encode", "query, key, key", "Wrong.encode returned .*not .*None"),
        ("encode", "query", "Wrong.encode returned"),
        ("embed", "inputs_embeds[0]", r"Wrong.embed returned \(5, 32\), not \(2, 5, 32\)"),
        ("relate", "1 / 0", "Wrong.relate fails: division by zero; correct the class"),
        ("prepare", "1 / 0", "Wrong.prepare fails: division by zero; correct the class"),
        ("number", "at", r"Wrong.number returned \(1, 5\), not \(1, 5\), \(1, 5\)"),
    ],
)
def test_a_wrong_class_is_refused_with_the_hook_and_the_shapes(hook, returned, message):
    from posgpt.training.encodings import check_hooks

    arguments = {
        "relate": "query, key, memo, place",
        "encode": "query, key, hidden, place",
        "embed": "inputs_embeds, at",
        "prepare": "hidden, place",
        "number": "at, keys",
    }
    method = eval(f"lambda self, {arguments[hook]}: ({returned})")
    wrong = type("Wrong", (PositionEncoding,), {hook: method})
    with pytest.raises(BadInput, match=message):
        check_hooks(wrong, PosGPTConfig(**SIZES))


# What takes positions from the length of what it is given, which is one token where a model writes.
COUNTING = {
    "embed": lambda self, inputs, at: inputs + torch.outer(*map(torch.arange, inputs.shape[1:])).sin(),
    "relate": lambda self, query, key, memo, place: (
        query,
        key,
        -(torch.arange(query.shape[2])[:, None] - torch.arange(key.shape[2])).abs().to(query)[None, None],
    ),
    "encode": lambda self, query, key, hidden, place: (
        query * torch.arange(query.shape[2])[:, None].cos(),
        key,
        None,
    ),
}


@pytest.mark.parametrize(
    "bias",
    [
        lambda key: key.sin().expand(1, 1, len(key), -1),
        lambda key: -2 * (key - key[:, None]).abs().log1p()[None, None],
    ],
)
def test_a_class_that_counts_padding_or_room_in_a_cache_is_refused(bias, monkeypatch):
    from posgpt.training.encodings import check_imported

    def relate(self, query, key, memo, place):
        return query, key, bias(torch.arange(key.shape[2]).float())[..., -query.shape[2] :, :]

    content = {"relate": relate, "has_bias": True, "__module__": "mine"}
    monkeypatch.setitem(POSITION_EMBEDDINGS, "mine", type("Mine", (PositionEncoding,), content))
    with pytest.raises(
        BadInput, match="otherwise when the others are cached behind padding and with room in the cache, so"
    ):
        check_imported(PosGPTConfig(position_embedding_type="mine", **SIZES))


@pytest.mark.parametrize("hook", [*COUNTING, "realte"])
def test_a_class_with_which_a_model_could_not_answer_is_refused(hook, monkeypatch):
    from posgpt.training.encodings import check_imported

    content = {hook: COUNTING.get(hook), "has_bias": hook == "relate", "__module__": "mine"}
    monkeypatch.setitem(POSITION_EMBEDDINGS, "mine", type("Mine", (PositionEncoding,), content))
    message = "'mine' reads a text's last token otherwise when the others are cached, so it could not answer"
    with pytest.raises(BadInput, match=message if hook in COUNTING else "Mine.realte is no hook; did you mean relate"):
        check_imported(PosGPTConfig(position_embedding_type="mine", **SIZES))


def test_a_setting_without_a_help_is_refused_when_its_class_is_made():
    with pytest.raises(TypeError, match=r"Mine.settings\['slope'\] is 1.0; write Setting\(default, help\)"):
        type("Mine", (PositionEncoding,), {"settings": {"slope": 1.0}})


@pytest.mark.parametrize("name", POSITION_EMBEDDINGS)
def test_no_class_of_the_package_would_be_refused(name):
    from posgpt.training.encodings import check_hooks, check_writing

    config = PosGPTConfig(position_embedding_type=name, **SIZES)
    check_hooks(POSITION_EMBEDDINGS[name], config)
    check_writing(config)


@pytest.mark.parametrize(
    "names, message",
    [
        (["rotary"] * 3, "position_embedding_type has 3 names for 2 layers; give one name for each"),
        (["learned", "sinusoidal"], "both embed positions before the first layer; choose one of them"),
        (["rotary", "rotery"], "position_embedding_type is 'rotery'; choose one of"),
        ([], "has 0 names for 2 layers"),
    ],
)
def test_mixes_that_make_no_sense_are_refused(names, message):
    with pytest.raises(Exception) as caught:
        PosGPTConfig(position_embedding_type=names, **SIZES)
    assert message in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="'rotary' is the name of PosGPTRotaryEmbedding already"):
        register("rotary")(type("Other", (PositionEncoding,), {}))
    for name in ("keys", "my.own", "mine+rotary"):
        with pytest.raises(ValueError, match=f"{name!r} cannot name positions".replace("+", ".")):
            register(name)(type("Other", (PositionEncoding,), {}))


@pytest.mark.parametrize("name", ["rotary", "t5"])
@torch.no_grad()
def test_randomized_positions_are_drawn_in_order_and_evenly_spaced_otherwise(name):
    usual, model = tiny_model(name), tiny_model(f"randomized+{name}", randomized_num_positions=100)
    model.load_state_dict({key: usual.state_dict()[key.replace(f".{name}.", ".")] for key in model.state_dict()})
    ids, every_third = tokens(2, 9), 3 * torch.arange(9)[None]
    close(model(ids).logits, usual(ids, position_ids=every_third).logits)

    seen = []
    randomized, positions = model.model.position_embedding["randomized"].train(), torch.tensor([[0, 1, 2], [0, 0, 1]])
    for _ in range(2_000):
        drawn, keys = randomized.number(positions, positions)
        assert torch.equal(drawn, keys) and drawn[0].diff().min() > 0 and drawn[1, 0] == drawn[1, 1]
        seen.append(drawn)
    # Order statistics of 3 and of 2 out of 100: the k-th of n is at k * 101 / (n + 1) - 1 on average.
    means = torch.stack(seen).float().mean(0)
    assert (means - torch.tensor([[24.25, 49.5, 74.75], [32.7, 32.7, 66.3]])).abs().max() < 2


@pytest.mark.parametrize(
    "names, settings, message",
    [
        ("rotary+rotary", {}, "'rotary+rotary' names 'rotary' twice"),
        ("learned+sinusoidal", {}, "both embed positions before the first layer"),
        ("rotary+pope", {}, "PosGPTPolarEncoding and PosGPTRotaryEmbedding do not take vectors of the same width"),
        ("rotary+", {}, "position_embedding_type is ''; choose one of"),
        ("randomized+learned", {}, "positions end there, so choose as many"),
        ("randomized+rotary", {"randomized_num_positions": 31}, "choose at least that many"),
        (
            "randomized+rotary",
            {"bottleneck_size": 4},
            "a bottleneck divides texts by positions, which PosGPTRandomizedPositions numbers anew",
        ),
    ],
)
def test_sums_that_make_no_sense_are_refused(names, settings, message):
    with pytest.raises(Exception) as caught:
        PosGPTConfig(position_embedding_type=names, **SIZES | settings)
    assert message in str(caught.value.__cause__)


def test_positions_without_weights_can_be_dropped_from_a_pretrained_model(tmp_path):
    from data_scripts.errors import BadInput
    from posgpt.training.architecture import ArchitectureArguments, load_pretrained

    tokenizer = build_tokenizer(["".join(map(chr, range(97, 97 + 26)))], SIZES["max_position_embeddings"])
    for name in ("rotary", "learned", "sinusoidal"):
        tiny_model(name, vocab_size=len(tokenizer)).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    architecture = ArchitectureArguments(position_embedding_type=["none"])
    arguments = SimpleNamespace(attn_implementation="sdpa")
    model, _ = load_pretrained(str(tmp_path / "rotary"), architecture, arguments)
    before = tiny_model("rotary", vocab_size=len(tokenizer)).state_dict()
    assert model.config.position_embedding_type == "none"
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    for name in ("learned", "sinusoidal"):
        with pytest.raises(BadInput, match=f"positions '{name}' cannot be dropped"):
            load_pretrained(str(tmp_path / name), architecture, arguments)


def test_a_pattern_of_layers_is_repeated():
    config = PosGPTConfig(position_embedding_type=["rotary", "rotary", "none"], **SIZES | {"num_hidden_layers": 6})
    assert config.layer_position_embeddings == ["rotary", "rotary", "none"] * 2


def test_a_phase_outside_its_bounds_has_a_gradient_that_brings_it_back():
    model = tiny_model("pope")
    (phase, *_), ids = (each for name, each in model.named_parameters() if name.endswith("phase")), tokens(2, 6)
    phase.data.fill_(0.5)
    model(ids, labels=ids).loss.backward()
    assert phase.grad.abs().max() > 0


@pytest.mark.parametrize("other", ["cope", "shaw", "path"])
def test_xpos_scales_what_others_have_read_wherever_it_is_named(other):
    ids = tokens(2, 20)
    first, last = (tiny_model(name, xpos_scale_base=8) for name in (f"xpos+{other}", f"{other}+xpos"))
    whole = first(ids, use_cache=False).logits
    torch.testing.assert_close(last(ids, use_cache=False).logits, whole)
    cache = DynamicCache(config=first.config)
    parts = [first(part, cache=cache, use_cache=True).logits for part in ids.split([7, 1, 12], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-4)
