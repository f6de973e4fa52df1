"""A small GPT reads biographies, character by character, and is asked where people were born. Needs torch and tqdm alone.

    python solution.py --data_dir data

pretrains it on wiki.txt, finetunes it on the training questions, prints its accuracy on dev beside the baseline's, and
writes its answers to the test questions to predictions.txt. `--help` lists the options.
"""

import argparse
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

# Input ids with as many labels.
Rows = list[tuple[list[int], list[int]]]
PAD, MASK = "□", "⁇"  # ids 0 and 1
UNGRADED = -100  # the label of what has no loss
MAX_LENGTH = 128


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Let each position attend to itself and to those before it, in each head (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).

    Write the softmax out; torch's own attention functions are not to be used.

    >>> query, key, value = torch.zeros(3, 1, 1, 2, 4)
    >>> query[..., 1, 0], key[..., 0, 0], value[..., 1, :] = 2 * math.log(3), 1, 4
    >>> attend(query, key, value).round(decimals=3)
    tensor([[[[0., 0., 0., 0.],
              [1., 1., 1., 1.]]]])

    Args:
        query, key, value: (batch, heads, length, head_dim).

    Returns:
        softmax(q kᵀ / √head_dim) v, (batch, heads, length, head_dim), where the score of a later key is -∞.
    """
    # BEGIN attention
    length, head_dim = query.shape[-2:]
    scores = query @ key.transpose(-1, -2) / math.sqrt(head_dim)
    is_later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    return scores.masked_fill(is_later, -torch.inf).softmax(dim=-1) @ value
    # END attention


def rotate(x: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """Rotate queries or keys by their positions (RoPE, Su et al. 2021, arXiv 2104.09864, eq. 34).

    Neighboring dimensions are pairs: (x1, x2), (x3, x4) and so on. At position t, counted from 0, pair j, counted from 1, is
    read as a complex number (the first of the two is the real part) and multiplied by exp(i t θ_j), where
    θ_j = base ** (-2 (j - 1) / head_dim).

    >>> rotate(torch.tensor([[[[1.0, 0.0, 1.0, 0.0]] * 2]]), base=100.0).round(decimals=3)
    tensor([[[[1.0000, 0.0000, 1.0000, 0.0000],
              [0.5400, 0.8410, 0.9950, 0.1000]]]])

    Args:
        x: (batch, heads, length, head_dim); head_dim is even.

    Returns:
        The same shape.
    """
    # BEGIN rotary
    length, head_dim = x.shape[-2:]
    theta = base ** (-torch.arange(0, head_dim, 2, device=x.device) / head_dim)
    angles = torch.arange(length, device=x.device)[:, None] * theta
    cos, sin = angles.cos(), angles.sin()
    real, imaginary = x[..., 0::2], x[..., 1::2]
    return torch.stack((real * cos - imaginary * sin, real * sin + imaginary * cos), dim=-1).flatten(-2)
    # END rotary


def corrupt_span(document: str, draws: Sequence[float], max_length: int) -> str:
    """Cut a document to a random length, take a random span of it out, and ask for it at the end.

    Let r1, r2 and r3 be the draws, and ⌊x⌋ the number x rounded down.

    - The document is cut to its first n characters: n = 4 + ⌊r1 · (m - 3)⌋ with m = ⌊7/8 · max_length⌋, but at most the length of
      the document.
    - The masked span has k = 1 + ⌊r2 · max(⌊n/2⌋ - 1, 1)⌋ characters.
    - ⌊r3 · (n - k + 1)⌋ characters stand before it.

    >>> corrupt_span("Ada Example was born in Lisbon .", (0.95, 0.35, 0.85), 32)
    'Ada Example was bor⁇Lis⁇n in ⁇'

    Args:
        document: At least one character.
        draws: Three numbers, each uniform in [0, 1).
        max_length: The maximum sequence length.

    Returns:
        prefix⁇suffix⁇masked⁇, where prefix + masked + suffix are the first n characters.
    """
    # BEGIN span_corruption
    longest = max_length * 7 // 8
    length = min(4 + int(draws[0] * (longest - 3)), len(document))
    masked = 1 + int(draws[1] * max(length // 2 - 1, 1))
    start = int(draws[2] * (length - masked + 1))
    end = start + masked
    return document[:start] + MASK + document[end:length] + MASK + document[start:end] + MASK
    # END span_corruption


def encode(text: str, ids: dict[str, int]) -> list[int]:
    """Return the ids of a text's characters; a character that `ids` lacks is read as □."""
    return [ids.get(character, ids[PAD]) for character in text]


def encode_pair(question: str, answer: str, ids: dict[str, int]) -> tuple[list[int], list[int]]:
    """Encode question⁇answer⁇, with loss on the answer and the ⁇ after it alone.

    >>> encode_pair("Who?", "Ada", {symbol: id for id, symbol in enumerate("□⁇Who?Ad")})
    ([2, 3, 4, 5, 1, 6, 7, 0, 1], [-100, -100, -100, -100, -100, 6, 7, 0, 1])

    Returns:
        The input ids, and as many labels: the same ids where there is loss, elsewhere `UNGRADED`. They are not shifted:
        `train` does that.
    """
    # BEGIN finetuning
    prompt, graded = encode(question + MASK, ids), encode(answer + MASK, ids)
    return prompt + graded, [UNGRADED] * len(prompt) + graded
    # END finetuning


def extract_answer(text: str) -> str:
    """Cut the answer out of question⁇answer⁇…, the question and what the model wrote after it.

    The answer may be empty, and the model may have written no ⁇ after it, or several. Nothing is stripped.

    >>> extract_answer("Who?⁇Ada Example⁇Bo")
    'Ada Example'
    """
    # BEGIN answer
    return text.split(MASK)[1]
    # END answer


def measure_accuracy(
    predictions: Sequence[str], answers: Sequence[str], baseline: str = "London"
) -> tuple[float, float]:
    """Return the share of the predictions that are correct, 0 to 1, and that of giving everyone the same answer.

    A prediction is correct if it equals its answer, character for character.

    >>> measure_accuracy(["Rome", "Oslo", "London", "rome"], ["Rome", "London", "Oslo", "Rome"])
    (0.25, 0.25)
    """
    # BEGIN accuracy
    correct = sum(prediction == answer for prediction, answer in zip(predictions, answers, strict=True))
    return correct / len(answers), sum(answer == baseline for answer in answers) / len(answers)
    # END accuracy


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, hidden_size: int, num_attention_heads: int):
        super().__init__()
        self.head_dim = hidden_size // num_attention_heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.qkv_proj, self.o_proj = nn.Linear(hidden_size, 3 * hidden_size), nn.Linear(hidden_size, hidden_size)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size), nn.GELU(), nn.Linear(4 * hidden_size, hidden_size)
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden_size) -> the same shape."""
        # (batch, length, 3, heads, head_dim) -> three of (batch, heads, length, head_dim)
        qkv = self.qkv_proj(self.attention_norm(x)).unflatten(-1, (3, -1, self.head_dim))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = attend(rotate(query), rotate(key), value).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.o_proj(attended))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """A causal language model with rotary positions; the defaults are the course's."""

    def __init__(
        self, vocab_size: int, hidden_size: int = 256, num_hidden_layers: int = 4, num_attention_heads: int = 8
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.Sequential(*(Layer(hidden_size, num_attention_heads) for _ in range(num_hidden_layers)))
        self.norm, self.head = nn.LayerNorm(hidden_size), nn.Linear(hidden_size, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) -> logits (batch, length, vocab_size)."""
        return self.head(self.norm(self.layers(self.embedding(input_ids))))


def pad(rows: Sequence[list[int]], value: int) -> torch.Tensor:
    """Stack rows of different lengths into (rows, longest row); `value` fills what is missing on the right."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def train(
    model: GPT, draw_rows: Callable[[], Rows], epochs: int, learning_rate: float, batch_size: int, title: str
) -> float:
    """Train for some epochs on rows of input ids and labels, which are drawn anew for each; return the last loss."""
    if not epochs:
        return math.nan
    model.train()
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    steps = epochs * math.ceil(len(draw_rows()) / batch_size)
    warmup = max(steps // 20, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (1 + math.cos(math.pi * step / steps)) / 2)
    )
    loss = torch.tensor(torch.nan)
    for _ in (progress := tqdm(range(epochs), desc=title, unit="epoch", disable=None)):
        rows = draw_rows()
        random.shuffle(rows)
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            input_ids = pad([row for row, _ in batch], 0).to(device)
            labels = pad([row for _, row in batch], UNGRADED).to(device)
            # What is written at a position is compared with the label of the next.
            logits = model(input_ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=UNGRADED)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        progress.set_postfix(loss=f"{loss.item():.3f}")
    return loss.item()


@torch.no_grad()
def predict(model: GPT, questions: Sequence[str], ids: dict[str, int], max_new_tokens: int = 32) -> list[str]:
    """Answer each question with the likeliest characters, one after the other."""
    model.eval()
    device = next(model.parameters()).device
    rows = [encode(question + MASK, ids) for question in questions]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    # No position sees what is on its right, so each row grows into its padding.
    input_ids = nn.functional.pad(pad(rows, 0), (0, max_new_tokens)).to(device)
    numbers = torch.arange(len(rows), device=device)
    for _ in tqdm(range(max_new_tokens), desc="Answering", unit="character", disable=None):
        logits = model(input_ids[:, : int(lengths.max())])
        input_ids[numbers, lengths] = logits[numbers, lengths - 1].argmax(-1)
        lengths += 1
    symbols = list(ids)
    written = zip(input_ids.tolist(), lengths, strict=True)
    return [extract_answer("".join(symbols[id] for id in row[:length])) for row, length in written]


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data_dir", type=Path, default=Path("data"), help="the folder with the data")
    parser.add_argument("--predictions_file", type=Path, default=Path("predictions.txt"), help="where answers go")
    numbers = {"pretraining_epochs": 650, "finetuning_epochs": 10, "batch_size": 128, "seed": 42}
    numbers |= {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)

    names = ("wiki.txt", "birth_test_inputs.tsv", "birth_places_train.tsv", "birth_dev.tsv")
    texts = [(arguments.data_dir / name).read_text(encoding="utf-8") for name in names]
    documents, questions, *lines = (text.splitlines() for text in texts)
    pairs, dev = ([line.split("\t") for line in each] for each in lines)
    symbols = [PAD, MASK, *sorted(set("".join(documents)))]
    ids = {symbol: id for id, symbol in enumerate(symbols)}
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    model = GPT(len(ids), arguments.hidden_size, arguments.num_hidden_layers, arguments.num_attention_heads).to(device)

    def draw_documents() -> Rows:
        texts = [corrupt_span(document, [random.random() for _ in range(3)], MAX_LENGTH) for document in documents]
        return [(row, row) for row in (encode(text, ids) for text in texts)]

    def draw_pairs() -> Rows:
        return [encode_pair(question, answer, ids) for question, answer in pairs]

    train(model, draw_documents, arguments.pretraining_epochs, 6e-3, arguments.batch_size, "Pretraining")
    train(model, draw_pairs, arguments.finetuning_epochs, 6e-4, 2 * arguments.batch_size, "Finetuning")
    predictions = predict(model, [question for question, _ in dev], ids)
    accuracy, baseline = measure_accuracy(predictions, [answer for _, answer in dev])
    print(f"dev: {accuracy:.1%}; London for everyone: {baseline:.1%}")
    # The model may write any character, the line break included.
    answers = [answer.translate(str.maketrans("\r\n", "  ")) + "\n" for answer in predict(model, questions, ids)]
    arguments.predictions_file.write_text("".join(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
