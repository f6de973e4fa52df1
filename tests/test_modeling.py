import math
from itertools import product

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, StaticCache, Trainer, TrainingArguments
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from model_helpers import EACH_HOOK, SIZES, tiny_model, tokens
from modeling_posgpt import BOTTLENECKS, POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM, PosGPTModel
from modeling_posgpt.cache import CACHE
from modeling_posgpt.dropout import round_rate
from modeling_posgpt.layers import build_mask
from modeling_posgpt.modeling_posgpt import shift_left
from modeling_posgpt.position_encoding import Place
from modeling_posgpt.positions_alibi import PosGPTAlibi

every_member = pytest.mark.parametrize("positions", EACH_HOOK)
every_acausal = pytest.mark.parametrize("positions", ["none", "learned", "rotary", "alibi", "pope"])


def ragged(lengths, side):
    """Rows of the given lengths and their batch, padded on one side, with its mask."""
    rows = [tokens(length, seed=length) for length in lengths]
    batch = pad_sequence(rows, batch_first=True, padding_side=side)
    # Real symbols are from 2.
    return rows, batch, (batch > 1).long()


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    "positions, settings, parameters",
    [
        ("learned", {}, 3_323_392),
        ("rotary", {}, 3_290_624),
        ("sinusoidal", {}, 3_290_624),
        # A quarter of each vector is the position's: 128 positions and 256 symbols.
        ("concatenated", {}, 3_290_624 - 256 * 64 + 128 * 64),
        # (2 (T - 1) + 1) * heads per layer, or (2 k + 1) * heads with clipping at k.
        ("relative_bias", {}, 3_290_624 + 4 * (2 * 127 + 1) * 8),
        ("relative_bias", {"relative_attention_max_distance": 16}, 3_290_624 + 4 * (2 * 16 + 1) * 8),
        ("alibi", {}, 3_290_624),
        ("none", {}, 3_290_624),
    ],
)
def test_the_tasks_model_has_the_known_number_of_parameters(positions, settings, parameters):
    model = PosGPTForCausalLM(PosGPTConfig(position_embedding_type=positions, **settings))
    assert model.num_parameters() == parameters


@pytest.mark.parametrize(
    "positions, side, attention",
    [
        *product(EACH_HOOK, ["right"], ["eager", "sdpa"]),
        # Compiled for up to a minute each time: windows in a row have both a mask and a bias there.
        *[
            pytest.param(*each, "flex_attention", marks=pytest.mark.slow)
            for each in product([*EACH_HOOK, "relative_bias"], ["left", "right"])
        ],
    ],
)
@torch.no_grad()
def test_a_padded_row_reads_like_the_row_alone(positions, side, attention):
    model = tiny_model(positions, "eager")
    rows, input_ids, mask = ragged([5, 17, 11], side)
    alone = [model(row[None]).logits[0] for row in rows]
    model.set_attn_implementation(attention)
    logits = model(input_ids, attention_mask=mask).logits
    for i, expected in enumerate(alone):
        close(logits[i][mask[i].bool()], expected)


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")
def test_cached_steps_read_like_the_whole_under_both_names_of_the_cache():
    model = tiny_model("rotary")
    input_ids = tokens(2, 12)
    first = model(input_ids[:, :5], use_cache=True)
    steps, cache = [first.logits], first.get(CACHE)
    for position in range(5, 12):
        # Both names that transformers has given it.
        cache_name = ("cache", "past_key_values")[position % 2]
        steps.append(model(input_ids[:, position : position + 1], **{cache_name: cache}, use_cache=True).logits)
    close(torch.cat(steps, 1), model(input_ids).logits)
    # The model without a head takes one, too.
    rest = model.model(input_ids[:, 5:], cache=model.model(input_ids[:, :5], use_cache=True).get(CACHE))
    close(rest[0], model.model(input_ids)[0][:, 5:])


@every_member
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_a_cache_is_greedy_search_without(positions, cache):
    model = tiny_model(positions)
    rows, input_ids, mask = ragged([4, 9, 6], "left")
    generated = model.generate(
        input_ids, attention_mask=mask, max_new_tokens=8, do_sample=False, eos_token_id=None,
        cache_implementation=cache, disable_compile=True,
    )  # fmt: skip
    for row, answer in zip(rows, generated[:, 9:], strict=True):
        for _ in range(8):
            row = torch.cat([row, model(row[None], use_cache=False).logits[0, -1].argmax(keepdim=True)])
        assert row[-8:].tolist() == answer.tolist()


@every_member
def test_a_static_cache_is_filled_in_chunks(positions):
    """It fails when transformers makes the cache's tensors before the model has said how wide they are."""
    model, input_ids = tiny_model(positions), tokens(2, 9)
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "disable_compile": True}
    chunked = model.generate(input_ids, cache_implementation="static", prefill_chunk_size=4, **options)
    assert torch.equal(chunked, model.generate(input_ids, use_cache=False, **options))


def test_continuous_batching_is_refused_before_it_takes_memory():
    with pytest.raises(ValueError, match="^continuous batching .* is not supported: call generate.$"):
        tiny_model("rotary").generate_batch([[3, 4], [5, 6, 7]], max_new_tokens=2)


@every_member
def test_generation_goes_on_from_a_cache_reads_vectors_and_takes_an_assistant(positions):
    model, input_ids = tiny_model(positions), tokens(1, 9)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    expected = model.generate(input_ids, **options).tolist()
    prefix = DynamicCache(config=model.config)
    model(input_ids[:, :5], past_key_values=prefix)
    assert model.generate(input_ids, past_key_values=prefix, **options).tolist() == expected
    vectors = model.get_input_embeddings()(input_ids)
    assert model.generate(inputs_embeds=vectors, **options).tolist() == [expected[0][9:]]
    for assistant in ({"assistant_model": tiny_model("none")}, {"assistant_early_exit": 1}):
        assert model.generate(input_ids, **assistant, **options).tolist() == expected
    with pytest.raises(ValueError, match="generate takes a cache as past_key_values"):
        model.generate(input_ids, cache=prefix, **options)


@pytest.mark.parametrize("positions", sorted(POSITION_EMBEDDINGS))
def test_half_precision_and_a_changed_configuration_are_as_good_as_new(positions):
    config = PosGPTConfig(position_embedding_type="none", **SIZES)
    config.position_embedding_type = positions
    model = PosGPTForCausalLM(config).eval()
    assert model.config == tiny_model(positions).config
    assert model.half()(tokens(2, 9)).logits.isfinite().all()
    config.num_attention_heads = 3
    with pytest.raises(StrictDataclassClassValidationError):
        PosGPTForCausalLM(config)


@every_acausal
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_without_positions_and_causality_the_model_is_permutation_equivariant(positions, attention):
    model = tiny_model(positions, attention, is_causal=False)
    input_ids, order = tokens(2, 10), torch.randperm(10, generator=torch.Generator().manual_seed(1))
    difference = (model(input_ids[:, order]).logits - model(input_ids).logits[:, order]).abs().max()
    assert difference < 1e-5 if positions == "none" else difference > 0.01


@every_acausal
def test_without_causality_the_first_token_sees_the_last_and_padding_stays_unseen(positions):
    model = tiny_model(positions, is_causal=False)
    input_ids = tokens(1, 10)
    other = input_ids.clone()
    other[0, -1] = input_ids[0, -1] % 30 + 3
    assert (model(other).logits - model(input_ids).logits)[0, 0].abs().max() > 1e-3
    assert model(input_ids, use_cache=True).get(CACHE) is None
    rows, input_ids, mask = ragged([5, 11], "left")
    close(model(input_ids, attention_mask=mask).logits[0, 6:], model(rows[0][None]).logits[0])


@every_member
def test_only_positions_looked_up_in_a_table_end_at_the_maximum_length(positions):
    model = tiny_model(positions)
    # Longer rows, of which the padding or the positions' new beginnings leave what fits.
    packed = model(tokens(2, 20).view(1, 40), position_ids=torch.arange(20).repeat(2)[None], use_cache=False).logits
    close(packed.view(2, 20, -1), model(tokens(2, 20)).logits)
    padded = torch.cat([torch.zeros(8, dtype=torch.long), tokens(30)])[None]
    close(model(padded, attention_mask=(padded > 0).long()).logits[:, 8:], model(tokens(1, 30)).logits)
    if not POSITION_EMBEDDINGS[positions].is_bounded:
        assert model(tokens(1, 50)).logits.isfinite().all()
        return
    cache = model(tokens(1, 32), use_cache=True).get(CACHE)
    for inputs in ({"input_ids": tokens(1, 33)}, {"input_ids": tokens(1, 1), "cache": cache}):
        with pytest.raises(ValueError, match="33 tokens.*max_position_embeddings = 32"):
            model(**inputs)


@pytest.mark.parametrize("positions", ["alibi", "relative_bias", "t5", "fox"])
def test_attention_that_would_ignore_a_bias_or_a_mask_of_windows_is_refused(positions):
    with pytest.raises(ValueError, match="does not support Flash Attention"):
        tiny_model(positions, "flash_attention_2")
    with pytest.raises(ValueError, match="flash_attention_2 takes no mask for each query; choose sdpa"):
        build_mask("flash_attention_2", torch.ones(1, 1, 4, 4, dtype=torch.bool).tril())


def test_scores_of_concatenated_positions_split_into_words_and_positions():
    config = PosGPTConfig(position_embedding_type="concatenated", position_share=0.5, **SIZES)
    model = PosGPTModel(config).eval()
    words = model.embed_tokens(tokens(1, 6))
    x = model.position_embedding.embed(words, torch.arange(6)[None])[0]
    assert words.shape[-1] == 16 and x.shape == (6, 32)
    query, key, _ = model.layers[0].self_attn.qkv_proj.weight.chunk(3)
    parts = [slice(0, 16), slice(16, 32)]
    terms = [(x[:, p] @ query[:, p].T) @ (x[:, q] @ key[:, q].T).T for p in parts for q in parts]
    close((x @ query.T) @ (x @ key.T).T, sum(terms))
    # The position's part knows nothing of the words.
    close(model.position_embedding.embed(words.flip(1), torch.arange(6)[None])[0, :, 16:], x[:, 16:])


def test_relative_distances_beyond_the_clip_count_as_the_clip():
    model = tiny_model("relative_bias", relative_attention_max_distance=3).model
    place = Place(torch.arange(10)[None], torch.arange(10)[None], layer_idx=1)
    place = place._replace(shared=model.position_embedding.prepare(torch.empty(0), place))
    bias = model.position_embedding.relate(torch.empty(0), torch.empty(0), None, place)[2][0]
    table = model.position_embedding.table.weight.view(7, 2, 4)
    for i, j, row in ((9, 0, 6), (5, 2, 6), (4, 2, 5), (4, 4, 3), (0, 1, 2), (0, 9, 0)):
        close(bias[:, i, j], table[row, 1])


def test_alibis_slopes_are_the_papers():
    slopes = {8: [2.0**-number for number in range(1, 9)], 1: [1 / 256]}
    slopes[6] = [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]
    for heads, expected in slopes.items():
        assert PosGPTAlibi.compute_slopes(heads) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_rounded_dropout_rate_has_a_scale_that_the_dtype_holds(rate, dtype):
    rounded = round_rate(rate, dtype)
    scale = 1 / (1 - rounded)
    assert torch.tensor(scale, dtype=dtype).item() == pytest.approx(scale, rel=1e-9)
    assert scale == pytest.approx(1 / (1 - rate), rel=torch.finfo(dtype).eps / 2)


def test_attention_on_a_device_drops_out_at_a_rounded_rate_in_training_alone(monkeypatch):
    rates = []

    def attend(module, query, key, value, attention_mask, dropout, **kwargs):
        rates.append(dropout)
        return query.transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", attend)
    for device in ("meta", "cpu"):
        model = tiny_model("alibi", num_hidden_layers=1).to(device, torch.bfloat16)
        for is_training in (True, False):
            model.train(is_training)(tokens(1, 8).to(device))
    assert rates == [pytest.approx(1 - 1 / 1.109375), 0.0, 0.1, 0.0]
    assert round_rate(0.0, torch.bfloat16) == 0.0


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "pope"])
@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_gradient_checkpointing_gives_the_same_gradients(positions, bottleneck):
    settings = {"embd_pdrop": 0, "resid_pdrop": 0, "attention_dropout": 0}
    settings |= {"num_hidden_layers": 3, "bottleneck_size": 6, "bottleneck_type": bottleneck}
    gradients = []
    for checkpointing in (False, True):
        model = tiny_model(positions, **settings).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        model(tokens(2, 12), labels=tokens(2, 12)).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None and gradient.abs().sum() > 0, name
        close(gradients[1][name], gradient, 1e-4)


def test_hidden_states_and_attentions_come_out():
    outputs = tiny_model("rotary", "eager")(tokens(2, 7), output_hidden_states=True, output_attentions=True)
    assert [state.shape for state in outputs.hidden_states] == [(2, 7, 32)] * 3
    for weights in outputs.attentions:
        close(weights.sum(-1), torch.ones(2, 4, 7))
        assert weights.shape == (2, 4, 7, 7) and (weights.triu(1) == 0).all()
    assert len(outputs.attentions) == 2


def test_the_loss_is_the_mean_over_what_is_labelled():
    model = tiny_model("rotary")
    input_ids, labels = tokens(3, 10), tokens(3, 10)
    labels[:, :4] = -100
    outputs = model(input_ids, labels=labels)
    expected = cross_entropy(outputs.logits[:, 3:-1].reshape(-1, 40), labels[:, 4:].reshape(-1))
    close(outputs.loss, expected)
    # What Trainer passes under gradient accumulation: the items of all its batches.
    close(model(input_ids, labels=labels, num_items_in_batch=36).loss, expected / 2)


@every_member
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
# The last acts on attention and MLP alike: each is tried where the other writes nothing.
@pytest.mark.parametrize("dropout", ["embd_pdrop", "attention_dropout", "self_attn.o_proj", "mlp.down_proj"])
def test_every_dropout_of_the_configuration_acts_in_training_alone(positions, attention, dropout):
    silent, dropout = (dropout, "resid_pdrop") if "proj" in dropout else (None, dropout)
    rates = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attention_dropout": 0.0, dropout: 0.5}
    model = tiny_model(positions, attention, **rates)
    for layer in model.model.layers if silent else []:
        nn.init.zeros_(layer.get_submodule(silent).weight)
        nn.init.zeros_(layer.get_submodule(silent).bias)
    assert torch.equal(model(tokens(1, 8)).logits, model(tokens(1, 8)).logits)
    model.train()
    assert not torch.equal(model(tokens(1, 8)).logits, model(tokens(1, 8)).logits)


def test_other_inputs_of_forward():
    model = tiny_model("learned")
    input_ids = tokens(2, 9)
    close(model(input_ids, logits_to_keep=2).logits, model(input_ids).logits[:, -2:])
    close(model(input_ids, logits_to_keep=torch.tensor([1, 5])).logits, model(input_ids).logits[:, [1, 5]])
    positions = torch.tensor([[0, 3], [2, 8]])
    close(model(input_ids, logits_to_keep=positions).logits[1], model(input_ids).logits[1, [2, 8]])
    for inputs in ({}, {"input_ids": input_ids, "inputs_embeds": torch.zeros(2, 9, 32)}):
        with pytest.raises(ValueError, match="exactly one"):
            model(**inputs)


@pytest.mark.parametrize("bottleneck", [None, *BOTTLENECKS])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_what_the_last_layer_leaves_out_changes_no_logit_and_no_gradient(bottleneck, attention):
    settings = {"bottleneck_size": 6, "bottleneck_type": bottleneck} if bottleneck else {}
    model, input_ids, labels = (
        tiny_model("rotary", attention, num_hidden_layers=3, **settings),
        tokens(3, 9),
        tokens(3, 9, seed=1),
    )
    labels[0, :5], labels[1] = -100, -100
    kept, read = shift_left(labels) != -100, []
    model.model.layers[-1].mlp.register_forward_pre_hook(
        lambda _, inputs: read.append(inputs[0].flatten(0, -2).shape[0])
    )
    outputs, gradients = [], []
    for given in ({}, {"logits_to_keep": kept}):
        model.zero_grad()
        outputs.append(model(input_ids, labels=labels, **given))
        outputs[-1].loss.backward()
        gradients.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
    whole, part = outputs
    close(part.logits, whole.logits[kept])
    close(part.loss, whole.loss)
    close(gradients[1], gradients[0])
    # Labels that are shifted already take the place of those that are not.
    given = {"labels": labels.flip(0), "shift_labels": shift_left(labels), "logits_to_keep": kept}
    close(model(input_ids, **given).loss, whole.loss)
    read.pop()
    # Of three rows of nine symbols, four are graded in the first, none in the second, and all but the first in the third.
    assert read == [27, 12]


@pytest.mark.parametrize(
    "positions", [pytest.param(name, marks=() if name == "alibi" else pytest.mark.slow) for name in EACH_HOOK]
)
@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
def test_it_compiles_without_a_graph_break(positions, attention):
    model = tiny_model(positions, attention)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    _, input_ids, mask = ragged([7, 12], "left")
    for given in ({}, {"attention_mask": mask}):
        expected, actual = (read(input_ids, labels=input_ids, **given) for read in (model, compiled))
        is_real = given.get("attention_mask", torch.ones_like(mask)).bool()
        close(actual.logits[is_real], expected.logits[is_real])
        close(actual.loss, expected.loss)


@every_member
def test_weights_start_as_the_task_says(positions):
    torch.manual_seed(0)
    for name, module in PosGPTForCausalLM(PosGPTConfig(position_embedding_type=positions)).named_modules():
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and (module.bias == 0).all(), name
        elif isinstance(module, nn.Linear | nn.Embedding):
            # Five standard errors of a standard deviation.
            tolerance = 5 / math.sqrt(2 * module.weight.numel())
            assert module.weight.std().item() == pytest.approx(0.02, rel=tolerance), name
            assert getattr(module, "bias", None) is None or (module.bias == 0).all(), name


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_output_layer_has_the_embeddings_weights_only_if_they_are_tied(tmp_path, is_tied):
    model = tiny_model("rotary", tie_word_embeddings=is_tied)
    tables = tiny_model("rotary").num_parameters() - model.num_parameters()
    assert tables == (model.lm_head.weight.numel() if is_tied else 0)
    model.save_pretrained(tmp_path)
    loaded = PosGPTForCausalLM.from_pretrained(tmp_path)
    assert (loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight) == is_tied
    close(loaded(tokens(2, 9)).logits, model(tokens(2, 9)).logits)


def test_label_smoothing_compares_each_position_with_the_next_token(tmp_path):
    model = tiny_model("rotary")
    arguments = TrainingArguments(tmp_path, label_smoothing_factor=0.1, use_cpu=True, report_to="none")
    input_ids, labels = tokens(2, 10), tokens(2, 10, seed=1)
    labels[:, :3] = -100
    loss = Trainer(model, arguments).compute_loss(model, {"input_ids": input_ids, "labels": labels})
    logits = model(input_ids).logits
    close(loss, cross_entropy(logits[:, 2:-1].reshape(-1, 40), labels[:, 3:].reshape(-1), label_smoothing=0.1))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_positions_that_skip_some_are_of_one_document(attention):
    model, ids = tiny_model("rotary", attention).eval(), torch.randint(2, 40, (2, 8))
    changed = ids.clone()
    changed[:, 0] = (ids[:, 0] + 1) % 38 + 2
    spread, packed = torch.arange(8)[None] * 3, torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
    for positions, is_seen in ((spread, True), (packed, False)):
        logits = [model(each, position_ids=positions).logits[:, -1] for each in (ids, changed)]
        assert torch.equal(*logits) != is_seen


def test_checkpointed_layers_refuse_a_cache_that_they_would_write_twice():
    model = tiny_model("rotary").train()
    model.activation_checkpointing_enable()
    with pytest.raises(ValueError, match="would write a cache twice"):
        model(tokens(1, 6), cache=DynamicCache(config=model.config))
    # One of their own is none of the user's business.
    assert torch.isfinite(model(tokens(1, 6), labels=tokens(1, 6)).loss)


@pytest.mark.parametrize("settings", [{"is_causal": False}, {"bottleneck_size": 4}, {}])
def test_documents_that_would_be_mixed_are_refused(settings):
    model = tiny_model("rotary", **settings)
    packed = {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]])}
    # A plain causal model keeps them apart, unless a mask of rows is given.
    packed |= {} if settings else {"attention_mask": torch.ones(1, 6, dtype=torch.long)}
    with pytest.raises(ValueError, match="positions restart within a row"):
        model(tokens(1, 6), **packed, use_cache=False)
    # Padding has any position.
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    padded = model(tokens(1, 6), attention_mask=mask, position_ids=torch.tensor([[1, 1, 0, 1, 2, 3]]), use_cache=False)
    alone = model(tokens(1, 6)[:, 2:], use_cache=False)
    close(padded.logits[:, 2:], alone.logits, 1e-4)


def test_a_model_that_sees_what_follows_does_not_generate():
    model = tiny_model("rotary", is_causal=False)
    with pytest.raises(ValueError, match="cannot generate"):
        model.generate(tokens(1, 6), max_new_tokens=2)
    with pytest.raises(ValueError, match="cannot be asked"):
        model.answer(["Who?"], None)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_mask_may_cover_the_empty_places_of_a_static_cache(positions):
    model, ids = tiny_model(positions), tokens(1, 9)
    whole = model(ids, use_cache=False).logits
    cache = StaticCache(config=model.config, max_cache_len=16)
    for begin, end in ((0, 6), (6, 8), (8, 9)):
        mask = (torch.arange(16) < end).long()[None]
        step = model(ids[:, begin:end], attention_mask=mask, cache=cache, use_cache=True)
        close(step.logits, whole[:, begin:end], 1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_mask_of_whole_numbers_hides_what_a_boolean_one_does(attention):
    model, ids = tiny_model("rotary", attention), tokens(1, 6)
    visible = torch.ones(1, 1, 6, 6).tril().bool()
    close(model(ids, attention_mask=visible.long()).logits, model(ids, attention_mask=visible).logits)


def test_a_model_built_without_memory_can_be_given_some():
    with torch.device("meta"):
        model = PosGPTForCausalLM(PosGPTConfig(position_embedding_type="rotary", **SIZES))
    model.to_empty(device="cpu").init_weights()
    assert torch.isfinite(model(tokens(1, 6)).logits).all()
