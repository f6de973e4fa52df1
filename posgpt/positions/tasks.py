"""Tasks whose answers are exact and in which positions matter, and how long each is trained.

To add one, write a function that draws a batch and add its `Task` to `TASKS`, here or in a file for `--import`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from itertools import combinations, product
from typing import Any

import numpy as np

from data_scripts.errors import BadInput, reraise_as_bad_input

# Inputs and labels, (rows, length) each. A label is what the model has to predict at its place.
Batch = tuple[np.ndarray, np.ndarray]
UNGRADED = -100
SEPARATOR, END = 0, 1
FIRST_SYMBOL = 2
LETTERS, SORTED_LETTERS, DIGITS = 64, 16, 10
# Source and distance of `index`: a letter, and how far left or right of it the letter is that is asked for.
MAX_SHIFT, QUESTIONS = 15, 8
KEYS = 128
# What `flip_flop` tells a bit to do, as in Liu et al. 2023 (arXiv 2306.00946).
WRITE, READ, IGNORE, ZERO, ONE = range(FIRST_SYMBOL, FIRST_SYMBOL + 5)
DENSE = 64
# The most that a command of `scan` has, and how many different words and actions there are.
COMMAND_WORDS, COMMAND_SYMBOLS = 9, 19
CUPS = 5
SWAPS = np.array(list(combinations(range(CUPS), 2)))


def join(prompt: np.ndarray, answer: np.ndarray, is_graded: np.ndarray | bool = True) -> Batch:
    """Return prompt, separator and answer as inputs, with what follows as labels where the answer is graded."""
    separator = np.full((len(answer), 1), SEPARATOR)
    tokens = np.concatenate((prompt, separator, answer), axis=1)
    ungraded = np.full(prompt.shape, UNGRADED)
    return tokens[:, :-1], np.concatenate((ungraded, np.where(is_graded, answer, UNGRADED)), axis=1)


def end(answer: np.ndarray) -> np.ndarray:
    """Append the symbol that ends an answer: its length is part of the task."""
    return np.pad(answer, ((0, 0), (0, 1)), constant_values=END)


def draw_letters(rng: np.random.Generator, rows: int, length: int, letters: int = LETTERS) -> np.ndarray:
    return rng.integers(FIRST_SYMBOL, FIRST_SYMBOL + letters, (rows, length))


def draw_distinct(rng: np.random.Generator, rows: int, length: int, symbols: int) -> np.ndarray:
    """Draw `length` of the first `symbols` for each row, none of them twice."""
    return rng.random((rows, symbols)).argsort(axis=1)[:, :length] + FIRST_SYMBOL


def copy(rng: np.random.Generator, rows: int, length: int) -> Batch:
    letters = draw_letters(rng, rows, length)
    return join(letters, end(letters))


def copy_twice(rng: np.random.Generator, rows: int, length: int) -> Batch:
    letters = draw_letters(rng, rows, length)
    return join(letters, end(np.tile(letters, 2)))


def reverse(rng: np.random.Generator, rows: int, length: int) -> Batch:
    letters = draw_letters(rng, rows, length)
    return join(letters, end(letters[:, ::-1]))


def sort(rng: np.random.Generator, rows: int, length: int) -> Batch:
    letters = draw_letters(rng, rows, length, SORTED_LETTERS)
    return join(letters, end(np.sort(letters, axis=1)))


def odds_first(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """The first, third, fifth letter and so on, and then the others (Delétang et al. 2022, arXiv 2207.02098)."""
    letters = draw_letters(rng, rows, length)
    return join(letters, end(np.concatenate((letters[:, ::2], letters[:, 1::2]), axis=1)))


def count(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """One letter, repeated; the answer repeats it as often (Kazemnejad et al. 2023, arXiv 2305.19466, "copy, rsc")."""
    letters = np.repeat(draw_letters(rng, rows, 1), length, axis=1)
    return join(letters, end(letters))


def add(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Two numbers of `length` digits and their sum, all with the last digit first; the separator of the two is `END`."""
    first, second = rng.integers(0, DIGITS, (2, rows, length))
    total, carry = np.zeros((rows, length + 1), dtype=int), np.zeros(rows, dtype=int)
    for i in range(length):
        carry, total[:, i] = np.divmod(first[:, i] + second[:, i] + carry, DIGITS)
    total[:, length] = carry
    plus = np.full((rows, 1), END - FIRST_SYMBOL)
    return join(np.concatenate((first, plus, second), axis=1) + FIRST_SYMBOL, total + FIRST_SYMBOL)


def index(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Distinct letters; then, QUESTIONS times, one of them, a distance and the letter that is so far from it.

    It is indirect indexing (Gopalakrishnan et al. 2025, arXiv 2509.10534), asked several times.
    """
    letters = draw_distinct(rng, rows, length, LETTERS)
    source, target = rng.integers(0, length, (2, rows, QUESTIONS))
    target = target.clip(source - MAX_SHIFT, source + MAX_SHIFT)
    shifts = FIRST_SYMBOL + LETTERS + MAX_SHIFT + target - source
    asked = (np.take_along_axis(letters, source, 1), shifts, np.take_along_axis(letters, target, 1))
    return join(letters, np.stack(asked, axis=2).reshape(rows, -1), np.arange(3 * QUESTIONS) % 3 == 2)


def recall(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Keys with values, then the keys in another order: their values are asked for (MQAR, arXiv 2312.04927)."""
    keys = draw_distinct(rng, rows, length, KEYS)
    values = rng.integers(FIRST_SYMBOL + KEYS, FIRST_SYMBOL + 2 * KEYS, (rows, length))
    pairs = np.stack((keys, values), axis=2)
    shuffled = np.take_along_axis(pairs, rng.random((rows, length)).argsort(axis=1)[..., None], axis=1)
    return join(pairs.reshape(rows, -1), shuffled.reshape(rows, -1), np.arange(2 * length) % 2 == 1)


def flip_flop(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Instructions with a bit each; a read repeats the bit written last (arXiv 2306.00946). Beyond DENSE they are sparse."""
    ignored = 0.8 if length <= DENSE else 0.98
    chances = [(1 - ignored) / 2, (1 - ignored) / 2, ignored]
    instructions = rng.choice([WRITE, READ, IGNORE], (rows, length), p=chances)
    instructions[:, 0], instructions[:, -1] = WRITE, READ
    bits = rng.integers(ZERO, ONE + 1, (rows, length))
    # Where a bit was written last, up to each place.
    written = np.maximum.accumulate(np.where(instructions == WRITE, np.arange(length), 0), axis=1)
    is_read = instructions == READ
    bits = np.where(is_read, np.take_along_axis(bits, written, axis=1), bits)
    is_graded = np.stack((np.zeros_like(is_read), is_read), axis=2).reshape(rows, -1)
    return join(np.empty((rows, 0), dtype=int), np.stack((instructions, bits), axis=2).reshape(rows, -1), is_graded)


@cache
def list_commands() -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return all commands of SCAN (Lake and Baroni 2018, arXiv 1711.00350, fig. 6 and 7) by how many actions they take.

    Commands are (commands, 9 words), preceded by `END` where they are shorter, and what they do is (commands, actions).
    """
    verbs = {name: [name.upper()] for name in ("walk", "look", "run", "jump")}
    phrases = dict(verbs)
    for verb, direction in product((*verbs, "turn"), ("left", "right")):
        turn, does = [direction.upper()], verbs.get(verb, [])
        phrases[f"{verb} {direction}"] = turn + does
        phrases[f"{verb} opposite {direction}"] = 2 * turn + does
        phrases[f"{verb} around {direction}"] = 4 * (turn + does)
    for phrase, does in list(phrases.items()):
        phrases |= {f"{phrase} twice": 2 * does, f"{phrase} thrice": 3 * does}
    commands = dict(phrases)
    for (first, does), (second, follows) in product(phrases.items(), repeat=2):
        commands |= {f"{first} and {second}": does + follows, f"{first} after {second}": follows + does}
    words = sorted({word for command, does in commands.items() for word in (*command.split(), *does)})
    numbers = {word: FIRST_SYMBOL + i for i, word in enumerate(words)}
    found: dict[int, tuple[list[list[int]], list[list[int]]]] = {}
    for command, does in commands.items():
        asked = [numbers[word] for word in command.split()]
        prompts, answers = found.setdefault(len(does), ([], []))
        prompts.append([END] * (COMMAND_WORDS - len(asked)) + asked)
        answers.append([numbers[word] for word in does])
    return {length: (np.array(prompts), np.array(answers)) for length, (prompts, answers) in found.items()}


def scan(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Commands in words, such as `jump around left twice`, and the actions that they take: `length`, or the next fewer there are."""
    by_length = list_commands()
    prompts, answers = by_length[max(each for each in by_length if each <= length)]
    chosen = rng.integers(len(prompts), size=rows)
    return join(prompts[chosen], end(answers[chosen]))


def swap(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Five cups, two of which change places at each step; at each place, what is in the first.

    It is the word problem of S5 (Merrill et al. 2024, arXiv 2404.08819) with one cup read instead of all.
    """
    words = rng.integers(0, len(SWAPS), (rows, length))
    cups, first = np.tile(np.arange(CUPS), (rows, 1)), np.empty_like(words)
    for i in range(length):
        places = SWAPS[words[:, i]]
        np.put_along_axis(cups, places, np.take_along_axis(cups, places[:, ::-1], axis=1), axis=1)
        first[:, i] = cups[:, 0]
    # The answer has no places of its own: earlier ones among the inputs would leave a single step to each.
    return words + FIRST_SYMBOL + CUPS, first + FIRST_SYMBOL


@dataclass(frozen=True)
class Task:
    """A task and its recipe.

    Args:
        draw: Draws a batch from a generator, so many rows of a length.
        symbols: Size of the vocabulary.

        trained: Shortest and longest length in training.
        tested: Lengths of the test sets, some of them beyond training.
        steps, learning_rate, layers: How it is trained.
        tokens: About how many tokens a batch has; a batch has one length, so short ones have more rows.
        rows: Test rows of each length.
    """

    draw: Callable[[np.random.Generator, int, int], Batch]
    symbols: int

    trained: tuple[int, int]
    tested: tuple[int, ...]
    steps: int = 2000
    learning_rate: float = 4e-3
    layers: int = 4
    tokens: int = 768
    rows: int = 256

    def __reduce__(self):
        # Other processes import the same files, and need not be sent functions, which may be made by functions.
        name = next((name for name, task in TASKS.items() if task.draw is self.draw), None)
        fields = {each: getattr(self, each) for each in self.__dataclass_fields__ if name is None or each != "draw"}
        return _rebuild, (name, fields)

    def check(self, name: str) -> None:
        """Raise BadInput if a model cannot be trained and tested on what is drawn."""
        with reraise_as_bad_input(f"task {name!r}", "correct its recipe.", TypeError, ValueError):
            shortest, longest = self.trained
            numbers = (self.symbols, self.steps, self.layers, self.tokens, self.rows, *self.trained, *self.tested)
            if not all(type(each) is int and each > 0 for each in numbers):
                raise ValueError("all numbers but the learning rate have to be whole ones above 0")
        if not shortest <= longest or self.is_beyond.all() or not self.is_beyond.any():
            raise BadInput(f"task {name!r}: tested needs lengths up to trained's longest, {longest}, and longer ones.")
        for length in sorted({*self.trained_lengths, *self.tested}):
            where = f"task {name!r} at length {length}"
            with reraise_as_bad_input(where, "correct what it draws.", Exception):
                drawn = [self.draw(np.random.default_rng(seed), 3, length) for seed in (0, 0, 1)]
                (inputs, labels), again, other = [tuple(map(np.asarray, batch)) for batch in drawn]
                # As many as a test has.
                self.draw_test(length)
            if inputs.ndim != 2 or len(inputs) != 3 or len({inputs.shape, labels.shape, other[0].shape}) > 1:
                raise BadInput(
                    f"{where} draws inputs {inputs.shape} and labels {labels.shape}, or another width each time, not twice (3, width)."
                )
            if not (np.array_equal(inputs, again[0]) and np.array_equal(labels, again[1])):
                raise BadInput(f"{where} draws something else from the same generator; draw from rng alone.")
            if length == longest and np.array_equal(inputs, other[0]):
                raise BadInput(f"{where} draws the same from another generator; draw from rng.")
            graded = labels[labels != UNGRADED]
            if not graded.size:
                raise BadInput(f"{where} has no label that is graded.")
            symbols = np.concatenate((inputs.ravel(), graded))
            if symbols.dtype.kind not in "iu" or symbols.min() < 0 or symbols.max() >= self.symbols:
                raise BadInput(
                    f"{where} draws {symbols.min()} to {symbols.max()}, not whole numbers below its {self.symbols} symbols."
                )

    def sample(self, rng: np.random.Generator, rows: int, length: int) -> Batch:
        """Return what `draw` does, as arrays of the integers that torch takes."""
        inputs, labels = self.draw(rng, rows, length)
        return np.asarray(inputs, dtype=np.int64), np.asarray(labels, dtype=np.int64)

    def draw_test(self, length: int) -> Batch:
        """Return the test set of a length, always the same."""
        return self.sample(np.random.default_rng((2026, length)), self.rows, length)

    @property
    def trained_lengths(self) -> range:
        """The lengths of training."""
        return range(self.trained[0], self.trained[1] + 1)

    @property
    def is_beyond(self) -> np.ndarray:
        """Which tested lengths are beyond those of training, (tested,)."""
        return np.array(self.tested) > self.trained[1]

    @cached_property
    def drawn(self) -> str:
        """A hash of all test sets, and of what training reads of each length: another one if the task has been changed."""
        drawn = sha256()
        for length in self.trained_lengths:
            drawn.update(b"".join(part.tobytes() for part in self.sample(np.random.default_rng(length), 8, length)))
        for length in self.tested:
            drawn.update(b"".join(part.tobytes() for part in self.draw_test(length)))
        return drawn.hexdigest()[:12]

    @cached_property
    def guesses(self) -> np.ndarray:
        """The accuracy per token of the better of two guesses, the last symbol again or always the same one, (tested,)."""
        shares = []
        for length in self.tested:
            inputs, labels = self.draw_test(length)
            is_graded = labels != UNGRADED
            often = np.bincount(labels[is_graded]).max() / is_graded.sum()
            shares.append(max(often, (inputs == labels)[is_graded].mean()))
        return np.array(shares)

    def measure_width(self, length: int) -> int:
        """Return how many tokens an example of a length has."""
        return self.sample(np.random.default_rng(0), 1, length)[0].shape[1]

    def describe_recipe(self) -> dict[str, Any]:
        """Return what runs must share to be compared; JSON values."""
        fields = {name: each for name, each in asdict(self).items() if name != "draw"}
        ranges = {"trained": list(self.trained), "tested": list(self.tested)}
        return fields | ranges | {"drawn": self.drawn}


def _rebuild(name: str | None, fields: dict[str, Any]) -> Task:
    return replace(TASKS[name], **fields) if name else Task(**fields)


LETTERED = FIRST_SYMBOL + LETTERS
SHORT: dict[str, Any] = {"trained": (3, 8), "tested": (4, 8, 10, 12, 14, 16)}
TASKS = {
    "copy": Task(copy, LETTERED, steps=2800, **SHORT),
    "copy_twice": Task(copy_twice, LETTERED, steps=2800, **SHORT),
    "reverse": Task(reverse, LETTERED, steps=2800, **SHORT),
    "sort": Task(sort, FIRST_SYMBOL + SORTED_LETTERS, steps=1800, **SHORT),
    "odds_first": Task(odds_first, LETTERED, **SHORT),
    "count": Task(count, LETTERED, (1, 20), (10, 20, 24, 28, 32, 36, 40), steps=2500),
    "addition": Task(add, FIRST_SYMBOL + DIGITS, (1, 5), (3, 5, 6, 8, 10)),
    "flip_flop": Task(flip_flop, ONE + 1, (DENSE, DENSE), (DENSE, 128, 256), layers=2, tokens=1024),
    "index": Task(index, LETTERED + 2 * MAX_SHIFT + 1, (20, 40), (20, 30, 40, 50, 60)),
    "recall": Task(recall, FIRST_SYMBOL + 2 * KEYS, (4, 16), (8, 16, 32, 64), layers=2),
    "scan": Task(scan, FIRST_SYMBOL + COMMAND_SYMBOLS, (1, 22), (10, 22, 24, 28, 32, 36, 40, 48), 6000),
    "swap": Task(swap, FIRST_SYMBOL + CUPS + len(SWAPS), (1, 8), (4, 8, 10, 12, 16)),
}
# Not learned in so few steps, or (`scan`) not tried: they have to be named.
SLOW = ("addition", "index", "recall", "scan", "swap")
