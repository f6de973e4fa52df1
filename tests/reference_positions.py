"""The formulas of the papers, written out with loops, and a model that computes nothing but them.

For the encoding NAME: `reference_NAME(layer, head)` returns the scores (length, length) of a head before the causal mask,
`embed_NAME(x, weights, config)` the first layer's input, and `mix_NAME(x, weights, config)` what attention reads. Without one,
there is nothing to it. `weights` are the encoding's own, by their names in it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from modeling_posgpt import PosGPTConfig


@dataclass
class Layer:
    """What a layer has computed: normalized `hidden` (length, hidden_size), `query` and `key` (heads, length, head_dim)."""

    config: PosGPTConfig
    weights: dict[str, Tensor]
    number: int
    hidden: Tensor
    query: Tensor
    key: Tensor
    scores: Tensor | None = None  # What another encoding of the layer makes of the product.

    def fill(self, score) -> Tensor:
        """Return score(i, j) of all pairs in which j is not after i."""
        length = len(self.hidden)
        scores = torch.zeros(length, length)
        for i in range(length):
            for j in range(i + 1):
                scores[i, j] = score(i, j)
        return scores

    def product(self, head: int) -> Tensor:
        product = self.query[head] @ self.key[head].T / math.sqrt(self.config.head_dim)
        return product if self.scores is None else self.scores


def embed_learned(x, weights, config):
    return x + weights["table.weight"][: len(x)]


def embed_concatenated(x, weights, config):
    return torch.cat([x, weights["table.weight"][: len(x)]], dim=1)


def embed_sinusoidal(x, weights, config):
    x = x * math.sqrt(config.hidden_size)
    for t in range(len(x)):
        for i in range(config.hidden_size // 2):
            x[t, 2 * i] += math.sin(t / 10000 ** (2 * i / config.hidden_size))
            x[t, 2 * i + 1] += math.cos(t / 10000 ** (2 * i / config.hidden_size))
    return x


def multiply_turned(layer, head, angle):
    """Pairs (x1, x2), (x3, x4), ... as complex numbers: the sum of Re(q_i k_j* exp(i angle(i, j))) over pairs."""
    query, key = (torch.view_as_complex(x[head].reshape(len(x[head]), -1, 2)) for x in (layer.query, layer.key))
    scores = layer.fill(lambda i, j: (query[i] * key[j].conj() * torch.exp(1j * angle(i, j))).real.sum())
    return scores / math.sqrt(layer.config.head_dim)


def reference_rotary(layer, head):
    theta, scale = list_frequencies(layer.config, len(layer.hidden))
    theta = torch.tensor(theta + [0.0] * (layer.config.head_dim // 2 - len(theta)))
    return multiply_turned(layer, head, lambda i, j: (i - j) * theta) * scale**2


def list_frequencies(config, length):
    """The frequencies of the pairs that turn, and the factor on queries and keys, as each of the papers has them."""
    given, longest, size = config.rope_parameters, config.max_position_embeddings, config.head_dim
    kind, base, s = given["rope_type"], given["rope_theta"], given.get("factor", 1.0)
    turning = int(size * given.get("partial_rotary_factor", 1))
    if kind == "proportional":  # Barbero et al. 2024: the lowest frequencies are 0.
        return [base ** (-2 * i / size) / s for i in range(turning // 2)], 1.0
    if kind == "dynamic":  # bloc97 and emozilla 2023: the base grows with the text.
        base *= (s * max(length, longest) / longest - (s - 1)) ** (turning / (turning - 2))
    theta = [base ** (-2 * i / turning) for i in range(turning // 2)]
    if kind == "linear":  # Chen et al. 2023, eq. 4
        return [each / s for each in theta], 1.0
    original = given.get("original_max_position_embeddings", longest)
    if kind == "longrope":  # Ding et al. 2024
        factors = given["long_factor" if length > original else "short_factor"]
        scale = math.sqrt(1 + math.log(s, original))
        return [each / factor for each, factor in zip(theta, factors, strict=True)], scale
    if kind == "llama3":  # Dubey et al. 2024: by how often a pair turns within the original length.
        low, high = given["low_freq_factor"], given["high_freq_factor"]
        shares = [(original * each / (2 * math.pi) - low) / (high - low) for each in theta]
    elif kind == "yarn":  # Peng et al. 2023, eq. 20, with the authors' ramp over pairs from 32 turns to 1.
        first, last = (turning * math.log(original / (2 * math.pi * n), base) / 2 for n in (32, 1))
        first, last = max(math.floor(first), 0), math.ceil(last)
        shares = [1 - (i - first) / (last - first) for i in range(len(theta))]
    else:
        return theta, 1.0
    shares = [min(max(share, 0), 1) for share in shares]
    mixed = [(1 - share) * each / s + share * each for each, share in zip(theta, shares, strict=True)]
    return mixed, 0.1 * math.log(s) + 1 if kind == "yarn" else 1.0


def reference_xpos(layer, head):
    size = layer.config.head_dim
    theta = torch.tensor([10000.0 ** (-2 * i / size) for i in range(size // 2)])
    zeta = torch.tensor([(i / (size / 2) + 0.4) / 1.4 for i in range(size // 2)])
    return multiply_turned(layer, head, lambda n, m: (n - m) * (theta - 1j * zeta.log() / 512))


def reference_grape_m(layer, head):
    frequency = torch.exp(layer.weights["weight"] / 16)
    return multiply_turned(layer, head, lambda i, j: (i - j) * frequency)


def reference_selective_rope(layer, head):
    size, taps = layer.config.head_dim, layer.weights["conv.weight"][:, 0]
    phases = []
    for x in layer.hidden:
        x = torch.cat([part / part.norm() for part in x.split(size)])
        phases.append(layer.weights["project.1.weight"] @ layer.weights["project.0.weight"] @ x)
    steps = [sum(taps[:, 3 - back] * phases[t - back] for back in range(min(t, 3) + 1)) for t in range(len(phases))]
    theta = torch.tensor([500000.0 ** (-2 * c / size) for c in range(size // 2)])
    own = slice(head * size // 2, (head + 1) * size // 2)
    return multiply_turned(layer, head, lambda i, j: theta * sum(step[own] for step in steps[j + 1 : i + 1]))


def reference_path(layer, head):
    weights, size = layer.weights, layer.config.head_dim
    turns, taps = [], weights["conv.weight"][:, 0]
    mapped = [weights["w.1.weight"] @ weights["w.0.weight"] @ x for x in layer.hidden]
    for t, x in enumerate(layer.hidden):
        w = sum(taps[:, 2 - back] * mapped[t - back] for back in range(min(t, 2) + 1))
        w = (w * torch.sigmoid(w))[head * size : (head + 1) * size]
        beta = 2 / (1 + torch.exp(-(weights["beta.weight"][head] @ x + weights["beta.bias"][head])))
        turns.append(torch.eye(size) - beta * torch.outer(w, w) / (w @ w))

    def score(i, j):
        moved = layer.key[head, j]
        for t in range(j + 1, i + 1):
            moved = turns[t] @ moved
        return layer.query[head, i] @ moved / math.sqrt(size)

    return layer.fill(score)


def reference_relative_bias(layer, head):
    table, heads = layer.weights["table.weight"], layer.config.num_attention_heads
    column = table[:, layer.number * heads + head]
    return layer.product(head) + layer.fill(lambda i, j: column[i - j + len(table) // 2])


def reference_alibi(layer, head):
    slope = 2.0 ** (-8 * (head + 1) / layer.config.num_attention_heads)
    return layer.product(head) + layer.fill(lambda i, j: -slope * (i - j))


def reference_t5(layer, head):
    buckets, longest = layer.config.t5_num_buckets, layer.config.t5_max_distance
    exact = buckets // 2

    def find_bucket(distance):
        if distance < exact:
            return distance
        return min(
            exact + int(math.log(distance / exact) / math.log(longest / exact) * (buckets - exact)), buckets - 1
        )

    return layer.product(head) + layer.fill(lambda i, j: layer.weights["table.weight"][find_bucket(i - j), head])


def reference_fox(layer, head):
    gate, bias = layer.weights["gate.weight"][head], layer.weights["gate.bias"][head]
    forget = [torch.log(1 / (1 + torch.exp(-(gate @ x + bias)))) for x in layer.hidden]
    return layer.product(head) + layer.fill(lambda i, j: sum(forget[j + 1 : i + 1]))


def reference_pope(layer, head):
    size = layer.config.head_dim
    theta = torch.tensor([10000.0 ** (-c / size) for c in range(size)])
    phase = layer.weights["phase"][head, 0].clamp(-2 * math.pi, 0)
    query, key = (torch.log(1 + torch.exp(x[head])) for x in (layer.query, layer.key))
    return layer.fill(lambda i, j: (query[i] * key[j] * torch.cos((j - i) * theta + phase)).sum()) / math.sqrt(size)


def mix_canon(x, weights, config):
    mixed = x.clone()
    for t in range(len(x)):
        for back in range(min(t, 3) + 1):
            mixed[t] += weights["conv.weight"][:, 0, 3 - back] * x[t - back]
    return mixed


def reference_cope(layer, head):
    product, table, query = layer.product(head), layer.weights["table"], layer.query[head]
    gates = 1 / (1 + torch.exp(-product))

    def score(i, j):
        position = min(float(gates[i, j : i + 1].sum()), len(table) - 1)
        low, share = math.floor(position), position - math.floor(position)
        return query[i] @ ((1 - share) * table[low] + share * table[math.ceil(position)])

    return product + layer.fill(score)


def reference_kerple(layer, head):
    r1, r2 = (float(layer.weights[name][head].exp()) for name in ("log_r1", "log_r2"))
    return layer.product(head) + layer.fill(lambda i, j: -r1 * math.log(1 + r2 * abs(i - j)))


def two_layers(x, weights, slope):
    hidden = weights["mlp.0.weight"] @ x + weights["mlp.0.bias"]
    return weights["mlp.2.weight"] @ torch.where(hidden > 0, hidden, slope * hidden) + weights["mlp.2.bias"]


def reference_fire(layer, head):
    c, longest = abs(float(layer.weights["c"])), abs(float(layer.weights["multiplier"])) * layer.config.fire_threshold

    def score(i, j):
        share = math.log(c * (i - j) + 1) / (math.log(c * max(longest, i) + 1) + 1e-6)
        return two_layers(torch.tensor([share]), layer.weights, 0)[head]

    return layer.product(head) + layer.fill(score)


def reference_shaw(layer, head):
    """Equation 4: the vector of a distance is added to the key."""
    table, query, key = layer.weights["table"][head], layer.query[head], layer.key[head]
    longest = len(table) // 2
    vectors = {i - j: table[min(i - j, longest) + longest] for i in range(len(query)) for j in range(i + 1)}
    return layer.fill(lambda i, j: query[i] @ (key[j] + vectors[i - j])) / math.sqrt(layer.config.head_dim)


def reference_dape(layer, head):
    heads = range(layer.config.num_attention_heads)
    products = torch.stack([layer.product(each) for each in heads])
    biases = torch.stack([reference_kerple(layer, each) for each in heads]) - products

    def adapt(i, j):
        return two_layers(torch.cat([products[:, i, j], biases[:, i, j]]), layer.weights, 0.01)[head]

    return products[head] + biases[head] + layer.fill(adapt)


def reference_ssmax(layer, head):
    scale, bias = layer.weights["scale"][head], layer.weights.get("bias", torch.zeros(head + 1))[head]
    counts = torch.arange(1, len(layer.hidden) + 1)[:, None]
    return (scale * torch.log(counts) + bias).view(-1, 1) * layer.product(head)


def find(kind: str, name: str, default):
    return globals().get(f"{kind}_{name}", default)


@torch.no_grad()
def compute_logits(model, input_ids: Tensor) -> Tensor:
    """Return a model's logits (length, vocab_size) for one row of ids, from its weights and the formulas alone."""
    weights, config = model.state_dict(), model.config
    names, heads, length = config.layer_position_embeddings, config.num_attention_heads, len(input_ids)

    def list_own(prefix):
        return {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}

    def layer_norm(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        normed = (x - mean) / torch.sqrt(variance + 1e-5)
        return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    shared = list_own("model.position_embedding.")
    x = weights["model.embed_tokens.weight"][input_ids]
    for part in dict.fromkeys(part for name in names for part in name.split("+")):
        x = find("embed", part, lambda x, *_: x)(x, shared | list_own(f"model.position_embedding.{part}."), config)
    for number, name in enumerate(names):
        prefix = f"model.layers.{number}"
        normed, parts = layer_norm(x, f"{prefix}.input_layernorm"), {}
        for part in name.split("+"):
            here = [f"{prefix}.self_attn.position_encoding.", f"{prefix}.self_attn.position_encoding.{part}."]
            own = [list_own(each) for each in (f"model.position_embedding.{part}.", *here)]
            parts[part] = shared | own[0] | own[1] | own[2]
            normed = find("mix", part, lambda x, *_: x)(normed, parts[part], config)
        projected = linear(normed, f"{prefix}.self_attn.qkv_proj").chunk(3, -1)
        query, key, value = (each.unflatten(-1, (heads, -1)).transpose(0, 1) for each in projected)
        mixed = []
        for head in range(heads):
            scores = None
            for part, own in parts.items():
                layer = Layer(config, own, number, normed, query, key, scores)
                scores = find("reference", part, Layer.product)(layer, head)
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            exponentials = torch.exp(scores - scores.max(-1, keepdim=True).values)
            mixed.append(exponentials / exponentials.sum(-1, keepdim=True) @ value[head])
        x = x + linear(torch.cat(mixed, -1), f"{prefix}.self_attn.o_proj")
        inner = linear(layer_norm(x, f"{prefix}.post_attention_layernorm"), f"{prefix}.mlp.up_proj")
        gelu = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
        x = x + linear(gelu, f"{prefix}.mlp.down_proj")
    return layer_norm(x, "model.norm") @ weights["lm_head.weight"].T
