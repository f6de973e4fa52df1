"""docs/assignment.md: the claims that no other test checks, and whether everything that the page points to is there."""

import ast
import math
import re
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch.utils.flop_counter import FlopCounterMode

from conftest import ROOT
from data_scripts.files import DEV_FILE, TRAIN_FILE
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE
from data_scripts.synthetic_world import World
from data_scripts.words import has_words
from model_helpers import SIZES, tiny_model, tokens
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from modeling_posgpt.cache import CACHE
from modeling_posgpt.layers import PosGPTAttention, PosGPTDecoderLayer, eager_attention_forward
from modeling_posgpt.position_encoding import Place
from modeling_posgpt.positions_learned import PosGPTConcatenatedEmbedding, PosGPTLearnedEmbedding
from modeling_posgpt.positions_none import PosGPTNoEmbedding
from modeling_posgpt.positions_relative_bias import PosGPTRelativeBias
from modeling_posgpt.positions_rotary import PosGPTRotaryEmbedding, rotate
from modeling_posgpt.positions_sinusoidal import PosGPTSinusoidalEmbedding
from posgpt.evaluation.evidence import find_documents
from posgpt.quickstart import ASKED

DOCS = ROOT / "docs"
PAGE = (DOCS / "assignment.md").read_text(encoding="utf-8")
# The text of each topic by its number.
TOPICS = {
    int(number): text for number, text in re.findall(r"^### (\d+)\. (.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
WIDTH, LENGTH = 16, 12
COURSE = {"hidden_size": WIDTH, "num_attention_heads": 2, "max_position_embeddings": 128}
# Topics 1 to 6: how many keys there are, which two are to be averaged, how long the queries are when a key's length varies, and
# how often it is drawn.
KEYS, FIRST, SECOND, STRENGTH, DRAWS = 10, 2, 7, 20, 2000


def config(positions="none", **settings):
    return PosGPTConfig(position_embedding_type=positions, **SIZES | COURSE | settings)


def build_model(positions="none", **settings):
    return tiny_model(positions, **COURSE | settings)


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


# Topics 1 to 6: one query, and as many keys as on the page.


def test_weights_are_a_distribution_and_the_output_is_within_the_values():
    rng = np.random.default_rng(0)
    keys, values, query = rng.normal(size=(KEYS, 8)), rng.normal(size=(KEYS, 8)), rng.normal(size=8)
    weights, output = attend(query, keys, values)
    assert (weights > 0).all() and weights.sum() == pytest.approx(1)
    assert (values.min(axis=0) < output).all() and (output < values.max(axis=0)).all()
    # Only differences of scores count: moving all keys alike adds the same number to every score.
    moved, _ = attend(query, keys + rng.normal(size=8), values)
    assert moved == pytest.approx(weights)
    scores = np.sort(keys @ query)
    assert weights.max() >= 1 / (1 + (KEYS - 1) * np.exp(scores[-2] - scores[-1]))
    uniform, mean = attend(np.zeros(8), keys, values)
    assert uniform == pytest.approx(np.full(KEYS, 1 / KEYS)) and mean == pytest.approx(values.mean(axis=0))


def test_scaling_keeps_the_spread_of_scores_the_same_at_any_width():
    attention = PosGPTAttention(PosGPTConfig(), layer_idx=0)
    scores = (draw(20_000, attention.head_dim) * draw(20_000, attention.head_dim, seed=1)).sum(-1)
    assert scores.std() == pytest.approx(math.sqrt(attention.head_dim), rel=0.03)
    assert (scores * attention.scaling).std() == pytest.approx(1, rel=0.03)
    assert f"{math.sqrt(attention.head_dim):.1f}" in TOPICS[1]


def attend(query, keys, values):
    """Weights (keys,) and output of one head for one query, unscaled as in the assignment."""
    weights = softmax(keys @ query)
    return weights, weights @ values


def draw_keys(rng):
    """(KEYS, 64) rows of length 1, at right angles to each other."""
    return np.linalg.qr(rng.normal(size=(64, KEYS)))[0].T


def test_copying_has_the_weight_of_the_formula():
    keys = draw_keys(np.random.default_rng(0))
    for length, shown in ((2, ".2f"), (6, ".3f"), (12, ".5f")):
        weight = attend(length * keys[FIRST], keys, keys)[0][FIRST]
        assert weight == pytest.approx(np.exp(length) / (np.exp(length) + KEYS - 1))
        assert format(weight, shown) in TOPICS[2]
    enough = math.log((KEYS - 1) * 0.99 / 0.01)
    assert attend(enough * keys[FIRST], keys, keys)[0][FIRST] == pytest.approx(0.99) and f"{enough:.1f}" in TOPICS[2]


def test_a_projection_extracts_either_of_two_values_from_their_sum():
    basis = torch.linalg.qr(draw(8, 6)).Q
    first, second = basis[:, :3], basis[:, 3:]
    v_a, v_b = first @ draw(3, seed=1), second @ draw(3, seed=2)
    project = first @ first.T
    close(project @ (v_a + v_b), v_a)
    close(project @ (0.7 * v_a + 0.3 * v_b), 0.7 * v_a)
    # Subspaces that meet in 0 alone, but not at right angles, take the pseudoinverse of both bases.
    slanted = torch.linalg.qr(second + 0.5 * first).Q
    v_b = slanted @ draw(3, seed=2)
    assert (project @ (v_a + v_b) - v_a).norm() > 0.1
    both = torch.cat([first, slanted], dim=1)
    oblique = first @ torch.linalg.pinv(both)[:3]
    close(oblique @ (v_a + v_b), v_a)


def test_the_average_leaks_to_the_other_keys_as_the_formula_says():
    rng = np.random.default_rng(1)
    keys, values = draw_keys(rng), rng.normal(size=(KEYS, 64))
    mean, rest = (values[FIRST] + values[SECOND]) / 2, np.delete(values, [FIRST, SECOND], axis=0).mean(axis=0)
    for length, shown in ((2, ".2f"), (6, ".3f"), (12, ".5f")):
        weights, output = attend(length * (keys[FIRST] + keys[SECOND]), keys, values)
        leak = (KEYS - 2) / (2 * np.exp(length) + KEYS - 2)
        assert weights[FIRST] == pytest.approx(weights[SECOND]) and weights[FIRST] == pytest.approx((1 - leak) / 2)
        assert output == pytest.approx((1 - leak) * mean + leak * rest)
        assert format(np.linalg.norm(output - mean) / np.linalg.norm(mean), shown) in TOPICS[4]


def share(strengths, keys):
    """The share of the value FIRST in the mean of heads, each of which asks for the keys FIRST and SECOND by two strengths."""
    queries = np.array(strengths) @ np.eye(KEYS)[[FIRST, SECOND]]
    return np.mean([attend(query, keys, np.eye(KEYS))[1][FIRST] for query in queries])


def test_little_noise_in_all_directions_leaves_the_average():
    # The keys' coordinates are in the means' own directions.
    rng, variance, one, two = np.random.default_rng(5), 1e-6, [], []
    for _ in range(DRAWS):
        keys = np.eye(KEYS) + rng.normal(0, math.sqrt(variance), (KEYS, KEYS))
        one.append(share([[STRENGTH, STRENGTH]], keys))
        two.append(share([[STRENGTH, 0], [0, STRENGTH]], keys))
    assert np.mean(one) == pytest.approx(0.5, abs=0.001)
    assert np.std(one) == pytest.approx(STRENGTH * math.sqrt(variance) / 2, rel=0.05)
    assert f"{np.std(one):.3f}" in TOPICS[5]
    assert np.mean(two) == pytest.approx(0.5, abs=1e-6) and np.std(two) < 1e-8


def test_with_a_key_of_varying_length_one_head_chooses_and_two_average():
    rng, normal = np.random.default_rng(2), NormalDist(1, math.sqrt(0.5))
    draw_keys(rng)  # the page's figures were drawn after these
    lengths = rng.normal(1, math.sqrt(0.5), DRAWS)
    scaled = [np.diag(np.where(np.arange(KEYS) == FIRST, length, 1)) for length in lengths]
    one = np.array([share([[STRENGTH, STRENGTH]], keys) for keys in scaled])
    two = np.array([share([[STRENGTH, 0], [0, STRENGTH]], keys) for keys in scaled])
    assert one == pytest.approx(1 / (1 + np.exp(-STRENGTH * (lengths - 1))), abs=1e-6)
    copied = np.exp(STRENGTH * lengths) / (np.exp(STRENGTH * lengths) + KEYS - 1)
    assert two == pytest.approx(copied / 2, abs=1e-6) and two.std() < one.std() / 3
    within, least = math.log(9) / STRENGTH, math.log(9 * (KEYS - 1)) / STRENGTH
    for topic, bound, expected, measured, shares in (
        (5, within, 2 * normal.cdf(1 - within), ((one < 0.1) | (one > 0.9)).mean(), one),
        (6, least, 1 - normal.cdf(least), (np.abs(two - 0.5) < 0.05).mean(), two),
    ):
        assert measured == pytest.approx(expected, abs=0.02)
        for number in (f"{bound:.2f}", f"{expected:.3f}", f"{measured:.3f}", f"{shares.std():.2f}"):
            assert number in TOPICS[topic]


# Topics 7 to 10: positions.


@pytest.mark.parametrize("layers, tells_order", [(1, False), (2, True)])
def test_the_causal_mask_alone_tells_the_order_from_the_second_layer_on(layers, tells_order):
    model, input_ids = build_model(num_hidden_layers=layers), tokens(1, LENGTH)
    swapped = input_ids[:, [2, 0, 1, *range(3, LENGTH)]]
    assert not torch.equal(swapped, input_ids)
    difference = (model(swapped).logits - model(input_ids).logits)[0, -1].abs().max()
    assert difference > 1e-3 if tells_order else difference < 1e-5


def sinusoidal_vectors(width, length):
    """The vectors of positions 0 to length - 1, (length, width): what is added to a token's vector of zeros."""
    embedding = PosGPTSinusoidalEmbedding(config("sinusoidal", hidden_size=width, num_attention_heads=1), 0)
    return embedding.embed(torch.zeros(1, length, width), torch.arange(length)[None])[0]


def find_nearest(vectors, rows=1000):
    """The smallest distance between any two of the vectors (length, width), and how many positions apart those are."""
    nearest = []
    for start in range(0, len(vectors), rows):
        later = vectors[start:]
        distances = torch.cdist(later[:rows], later)
        distances[torch.ones_like(distances).tril().bool()] = math.inf
        row, column = divmod(int(distances.argmin()), len(later))
        nearest.append((float(distances[row, column]), column - row))
    return min(nearest)


@pytest.mark.parametrize("length", [128, 1024, 10_000])
def test_no_two_positions_share_a_sinusoidal_vector(length):
    distance, apart = find_nearest(sinusoidal_vectors(256, length))
    assert apart == 1 and distance == pytest.approx(2.67, abs=0.005)
    frequencies = 10000.0 ** (-np.arange(0, 256, 2) / 256)
    assert distance == pytest.approx(math.sqrt((4 * np.sin(frequencies / 2) ** 2).sum()), abs=0.005)
    # Two dimensions suffice in theory and come close to failing in practice: 710 is nearly 113 turns.
    distance, apart = find_nearest(sinusoidal_vectors(2, length).double())
    assert 0 < distance == pytest.approx(2 * abs(math.sin(apart / 2)), rel=0.01)
    near = {44: "0.018", 710: "0.00006"}[apart]
    assert float(near) == pytest.approx(distance, rel=0.02) and apart == (44 if length == 128 else 710)
    assert f"| {length:,} | {near}, {apart} apart | 2.67, 1 apart |" in TOPICS[8]


def turn(width, shift):
    """Cos and sin, (1, 1, width) each, of RoPE's angles at a position, with `width` dimensions per head, in double precision."""
    embedding = PosGPTRotaryEmbedding(config("rotary", hidden_size=width, num_attention_heads=1), 0)
    angles = shift * embedding.inv_freq.double().repeat_interleave(2)[None, None]
    return angles.cos(), angles.sin()


def test_sinusoidal_vectors_move_on_by_rotarys_rotation():
    vectors = sinusoidal_vectors(64, 50).double()
    for shift in (1, 9, 30):
        # Sine comes first in these pairs, so they turn the other way.
        moved = rotate(vectors[None, None, : 50 - shift], *turn(64, -shift))[0, 0]
        close(moved, vectors[shift:], 1e-4)


@torch.no_grad()
def test_scores_of_added_positions_have_four_terms_and_of_concatenated_ones_two():
    added = PosGPTLearnedEmbedding(config("learned"), 0).double()
    concatenated = PosGPTConcatenatedEmbedding(
        config("concatenated", hidden_size=2 * WIDTH, position_share=0.5), 0
    ).double()
    added.table.weight.normal_()
    concatenated.table.weight.copy_(added.table.weight)
    words, places = draw(1, LENGTH, WIDTH), torch.arange(LENGTH)[None]
    x, p = words[0], added.table(places)[0]
    sums, pairs = added.embed(words, places)[0], concatenated.embed(words, places)[0]
    close(sums @ sums.T, x @ x.T + x @ p.T + p @ x.T + p @ p.T)
    close(pairs @ pairs.T, x @ x.T + p @ p.T)
    assert (x @ p.T).abs().max() > 1
    # Adding is concatenation with tied projections.
    weight = draw(WIDTH, WIDTH, seed=1)
    close(sums @ weight.T, pairs @ torch.cat([weight, weight], dim=1).T)


@torch.no_grad()
def test_concatenation_is_adding_tables_that_have_no_dimension_in_common():
    concatenated, added = build_model("concatenated", position_share=0.25), build_model("learned")
    weights = concatenated.state_dict()
    tables = {"model.embed_tokens.weight": slice(0, 12), "model.position_embedding.table.weight": slice(12, 16)}
    for name, dimensions in tables.items():
        padded = torch.zeros_like(added.state_dict()[name])
        padded[:, dimensions] = weights[name]
        weights[name] = padded
    before = added(tokens(1, LENGTH)).logits
    added.load_state_dict(weights)
    close(added(tokens(1, LENGTH)).logits, concatenated(tokens(1, LENGTH)).logits)
    assert (before - concatenated(tokens(1, LENGTH)).logits).abs().max() > 0.01


@torch.no_grad()
def test_a_relative_bias_is_what_one_hot_positions_score_when_concatenated():
    embedding = PosGPTRelativeBias(config("relative_bias", relative_attention_max_distance=3), 0).double()
    embedding.table.weight.normal_()
    places = torch.arange(LENGTH)[None]
    place = Place(places, places, layer_idx=1)
    place = place._replace(shared=embedding.prepare(torch.empty(0), place))
    bias = embedding.relate(torch.empty(0), torch.empty(0), None, place)[2]
    query, key, value = (draw(1, 2, LENGTH, 8, seed=seed) for seed in (1, 2, 3))
    module = PosGPTAttention(config(), layer_idx=0).eval()
    expected, _ = eager_attention_forward(module, query, key, value, None, 0.5, position_bias=bias)
    one_hot = torch.eye(LENGTH, dtype=torch.double).expand_as(bias)
    # The query's position goes through the matrix whose entry (i, j) is the number of the distance i - j.
    query, key = torch.cat([query, one_hot @ bias / 0.5], dim=-1), torch.cat([key, one_hot], dim=-1)
    close(eager_attention_forward(module, query, key, value, None, 0.5)[0], expected)
    for number in range(-LENGTH + 1, LENGTH):
        assert bias[0, 0].diagonal(number).unique().numel() == 1
    assert embedding.table.weight.numel() == (2 * 3 + 1) * 2 * 2  # two heads in each of two layers


def test_a_rotation_is_a_product_of_complex_numbers_whose_scores_know_the_difference():
    width, m, n = 16, 37, 12
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.double) / width)
    query, key = draw(width, seed=1), draw(width, seed=2)
    complex_query, complex_key = (torch.view_as_complex(x.view(-1, 2)) for x in (query, key))
    turned = [rotate(x.view(1, 1, 1, -1), *turn(width, t)).flatten() for x, t in ((query, m), (key, n))]
    product = complex_query * torch.exp(1j * m * frequencies)
    close(turned[0], torch.view_as_real(product).flatten())
    expected = (complex_query * complex_key.conj() * torch.exp(1j * (m - n) * frequencies)).sum().real
    close(turned[0] @ turned[1], expected)
    assert (turned[0] @ turned[1] - query @ key).abs() > 0.1


# Topics 11 to 13: cost, masking, heads.


def count_multiplications(module, *inputs, **settings):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs, **settings)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("length", [16, 32, 128])
def test_a_layer_multiplies_as_often_as_the_formula_says(length):
    course = PosGPTConfig(attn_implementation="eager")
    layer, d = PosGPTDecoderLayer(course, layer_idx=0).eval(), course.hidden_size
    place, encoding = Place(*torch.arange(length).expand(2, 1, -1)), PosGPTNoEmbedding(course, 0)
    counted = count_multiplications(partial(layer, place=place, position_encoding=encoding), torch.zeros(1, length, d))
    assert counted == 12 * length * d**2 + 2 * length**2 * d
    assert 12 * d**2 == 2 * (6 * d) * d and f"{6 * d:,}" in TOPICS[11]
    if length == course.max_position_embeddings:
        assert 12 * length * d**2 == 12 * (2 * length**2 * d) and "a twelfth" in TOPICS[11]


def test_any_two_positions_are_one_layer_of_attention_apart():
    model = build_model(num_hidden_layers=1)
    changed = tokens(1, 128)
    changed[0, 0] = changed[0, 0] % 30 + 3
    assert (model(changed).logits - model(tokens(1, 128)).logits)[0, -1].abs().max() > 1e-5


@torch.no_grad()
def test_one_masked_pass_predicts_what_every_prefix_alone_does():
    input_ids = tokens(1, LENGTH)
    for is_causal in (True, False):
        model = build_model("rotary", is_causal=is_causal)
        whole = model(input_ids).logits[0]
        alone = torch.stack([model(input_ids[:, :end]).logits[0, -1] for end in range(1, LENGTH + 1)])
        differences = (whole - alone).abs().amax(-1)
        assert differences.max() < 1e-5 if is_causal else differences[:-1].min() > 1e-3


@torch.no_grad()
def test_a_cache_holds_a_key_and_a_value_per_layer_and_token():
    course = PosGPTConfig()
    cache = PosGPTForCausalLM(course)(tokens(1, LENGTH), use_cache=True).get(CACHE)
    numbers = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers) // LENGTH
    assert numbers == 2 * course.num_hidden_layers * course.hidden_size and f"{numbers:,} numbers" in TOPICS[12]


def test_the_number_of_heads_changes_neither_parameters_nor_multiplications():
    counts = set()
    for heads in (1, 2, 4, 8):
        model = build_model(num_attention_heads=heads, attention="eager")
        counts.add((model.num_parameters(), count_multiplications(model, tokens(1, LENGTH), use_cache=False)))
    assert len(counts) == 1


@pytest.mark.parametrize("heads, layers, field", [(1, 4, 16), (8, 2, 81), (8, 3, 729)])
def test_heads_that_each_copy_from_one_place_can_reach_the_bound(heads, layers, field):
    last, seen = 1000, {1000}
    for layer in range(layers):
        # In this layer, head number `head` copies from head * (heads + 1) ** layer places before.
        seen |= {place - head * (heads + 1) ** layer for place in seen for head in range(1, heads + 1)}
    assert seen == set(range(last - field + 1, last + 1)) and field == (heads + 1) ** layers
    assert heads == 1 or str(field) in TOPICS[13]


# Topic 14.


def test_the_pairs_of_a_world_name_nobody_they_are_not_about_but_its_corpus_does(tmp_path):
    asked = [relation.name for relation in ASKED]
    World(num_people=300, num_places=60, biographies_per_person=2, relations=asked).write(tmp_path)  # the quickstart's
    train, dev = (load_questions(tmp_path / name).select(BIRTHPLACE) for name in (TRAIN_FILE, DEV_FILE))
    assert not set(train.texts) & set(dev.texts)
    documents = find_documents(tmp_path / "wiki.txt", dev.titles)
    for name, place in zip(dev.titles, dev.answers, strict=True):
        assert any(has_words(document.text, place) for document in documents[name])
    most_frequent = max(set(train.answers), key=train.answers.count)
    share = dev.answers.count(most_frequent) / len(dev)
    assert f"{len(dev)} held-out people" in TOPICS[14] and f"{share:.1%}".replace("%", " %") in TOPICS[14]


# The page.


def test_every_topic_has_a_claim_a_derivation_and_something_that_shows_it():
    assert list(TOPICS) == list(range(1, 16))
    for number, text in TOPICS.items():
        claim, why, shown = (text.index(f"**{part}.**") for part in ("Claim", "Why", "Shown by"))
        assert claim < why < shown and "$" in text[why:shown], number
        assert re.search(r"`tests/test_\w+\.py::test_\w+`", text[shown:]), number


def test_every_function_and_page_that_the_page_names_is_there():
    pointers = set(re.findall(r"([\w/]+\.py)::(\w+)", PAGE))
    assert len(pointers) > 30
    trees = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path, _ in pointers}
    assert not pointers - {
        (path, node.name) for path, tree in trees.items() for node in tree.body if hasattr(node, "name")
    }
    # The other way round, every test of a claim is named.
    source = (ROOT / "tests" / "test_course.py").read_text(encoding="utf-8").split("\n# The page.\n")[0]
    own = {name for path, name in pointers if path == "tests/test_course.py"}
    assert own == set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", PAGE) if not link.startswith("https://")]
    assert len(links) > 3 and all((DOCS / link).is_file() for link in links)


def list_figures(text):
    """All percentages and all numbers of the form 0.123."""
    percentages = {f"{float(number):g} %" for number in re.findall(r"(\d+(?:\.\d+)?) ?%", text)}
    return percentages | set(re.findall(r"\b0\.\d{3}\b", text))


def test_every_percentage_and_every_figure_on_confidence_is_one_of_the_other_pages():
    other_pages = [ROOT / "README.md", *(page for page in DOCS.glob("*.md") if page.name != "assignment.md")]
    known = set.union(*(list_figures(page.read_text(encoding="utf-8")) for page in other_pages))
    percentages = {figure for figure in list_figures("".join(TOPICS.values())) if "%" in figure}
    assert len(percentages) > 10 and percentages <= known
    assert list_figures(TOPICS[15]) <= known
