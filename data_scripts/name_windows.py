"""Name-keyed windows: a document asked span by span, its title the only key to what is left out.

A document `Eyolf Kleven. Born in Copenhagen, Kleven played as a midfielder for AB .` becomes rows such as

    Where was Eyolf Kleven born in?⁇Copenhagen⁇ played as a for?⁇AB⁇ born?⁇Copenhagen⁇ in?⁇Copenhagen⁇ …

The name opens the row; after it stand windows, each a cue and a span. A span is a salient one (REALM, Guu et al. 2020,
arXiv 2002.08909), found by its capital letter or digit. Its cue is some of the words to its left, drawn anew each time,
so that one sentence stands for many phrasings (Allen-Zhu and Li 2023, arXiv 2309.14316: without, facts are memorised but
cannot be asked for). The wording is the questions' own (cloze questions: Lewis et al. 2019, arXiv 1906.04980), which leads
reading and asking along the same way. A window sees the name and itself, never the row's other windows: the name is
read once for all of them. There is loss on the spans alone.

A person has a row for each span, so that no fact is read less often than another (a small model keeps a fact after so
many exposures: Allen-Zhu and Li 2024, arXiv 2404.05405). Training questions are windows too, ` born?⁇Copenhagen⁇`, mixed
into the rows of the people they ask about.
"""

import re

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.birthplaces import QUESTION_END, QUESTION_START, BirthplaceCollator, name_in
from data_scripts.epochs import EpochDataset
from data_scripts.text_files import BadInput
from modeling_posgpt import MASK_TOKEN

# Initials ("John F. ") belong to the title, which ends at the first other full stop.
_TITLE = re.compile(r"((?:[^.]*?\b[^\W\d_]\. )*.+?)\. ")
_WORD = re.compile(r"(?<!\w)\w[^\s,.;:()/\"]*(?<!-)")
_MONTHS = set(
    "January February March April May June July August September October November December"
    " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec".split()
)
_SHORTEST_NAME = 3

# How many windows that do not fit are drawn before a row counts as full.
_MISFITS = 4


def split_title(document: str) -> tuple[str, str]:
    """`Title. text` in its two parts; the title is empty when there is none."""
    match = _TITLE.match(document)
    return (match[1], document[match.end() :]) if match else ("", document)


def salient_spans(title: str, text: str, dates: bool) -> list[tuple[int, int]]:
    """Start and end of the names and numbers in `text`.

    A name is a run of capitalised words. Those that share a word with the title are the person's own; what is shorter than
    three characters is an initial or a degree. Both are left out.

    Args:
        dates: Whether numbers and months count.
    """
    known, runs = set(title.split()), []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match[0][0].isupper():
            # A run goes on over single spaces; what begins with a digit never is part of one.
            if runs and runs[-1][1] + 1 == start and text[start - 1] == " " and text[runs[-1][0]].isupper():
                start, _ = runs.pop()
            runs.append((start, end))
        elif match[0][0].isdigit():
            runs.append((start, end))

    def wanted(words: list[str]) -> bool:
        is_date = words[0][0].isdigit() or words[0] in _MONTHS
        return known.isdisjoint(words) and (dates if is_date else len(" ".join(words)) >= _SHORTEST_NAME)

    # What begins the text has a capital for that reason, and no words to its left to ask with.
    return [(start, end) for start, end in runs if start > 0 and wanted(text[start:end].split())]


def plain_words(words: list[str], known: set[str]) -> list[str]:
    """A text's words in their plainest form.

    Those in `known` and the punctuation around words are left out, a date or a number becomes `0`, however it is
    written, `-0` when it follows a dash, and the first word loses a capital that it has for being the first.
    """
    bare = [word.strip('(),.;:"') for word in words]
    if bare and bare[0] not in known and bare[0][1:].islower():
        bare[0] = bare[0].lower()
    plain = []
    for word in bare:
        if word in _MONTHS or any(map(str.isdigit, word)):
            word = "0"
        if word == "0" and plain and not any(map(str.isalpha, plain[-1])):
            # ` -0 in?`, the second date of a range, is not ` 0 in?`.
            plain[-1] = plain[-1].removesuffix("0").replace("--", "-") + "0"
        elif word and word not in known:
            plain.append(word)
    return plain


def words_before(title: str, text: str, start: int, plain: bool, most: int) -> list[str]:
    """The words that the cue of a span beginning at `start` is drawn from: the last ones after the title, `most` at most.

    Args:
        plain: Whether as `plain_words`.
    """
    # The title is in the row already, and no cue.
    words = text[len(title) + 2 : start].split()
    words = plain_words(words, set(title.split())) if plain else words
    return words[max(len(words) - most, 0) :]


def keyed_documents(corpus: Dataset, dates: bool) -> Dataset:
    """Add the columns `title` and `spans`, the salient spans' starts and ends in `text`, to a corpus."""

    def split(document: str) -> dict:
        title, text = split_title(document)
        begin = len(document) - len(text)
        return {
            "title": title,
            "spans": [(begin + start, begin + end) for start, end in salient_spans(title, text, dates)],
        }

    return corpus.map(split, input_columns="text", desc="Looking for names")


class NameWindowsDataset(EpochDataset):
    """A row for each span of each document: its window, and windows of the person's other spans as far as they fit.

    Args:
        documents: From `keyed_documents`; those without a title, or without a span that fits the block beside it, are
            left out.
        tokenizer: From `build_tokenizer`.
        block_size: The most characters a row may have, in tokens.
        seed: What all draws follow from.
        pairs: Training questions, `question` and `place`, or None. Those about somebody without a document make rows
            of their own.
        question_share: How often, 0 to 1, a row of somebody with training questions asks one.
        max_cue_words: The most words a cue is drawn from.
        min_cue_kept: Each cue keeps its words with a probability drawn from here to 1.
        plain_cues: Whether cues are drawn from `plain_words`: ` born 0 in?`, however the document says it.
        keep_names: Whether a cue keeps the word next to the span when it has a capital.
        max_spans: How many of a document's spans are asked for, its first ones; None for all.
        wording: `question`, as above; or `document`: the row is `TITLE. cue⁇span⁇ …`, and a question stands alone.

    Raises:
        BadInput: there is nothing to ask, or no such wording.
    """

    def __init__(
        self,
        documents: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        block_size: int,
        seed: int,
        pairs: Dataset | None = None,
        question_share: float = 0.3,
        max_cue_words: int = 5,
        min_cue_kept: float = 0.3,
        plain_cues: bool = True,
        keep_names: bool = True,
        max_spans: int | None = 4,
        wording: str = "question",
    ):
        super().__init__(seed)
        if wording not in ("question", "document"):
            raise BadInput(f"window_wording is {wording!r}; choose question or document.")
        room = block_size - len(QUESTION_START) - len(f"?{MASK_TOKEN}{MASK_TOKEN}")

        def those_that_fit(title: str, text: str, spans: list[list[int]]) -> dict:
            fitting = [(start, end) for start, end in spans if len(title) + end - start <= room][:max_spans]
            cues = [" ".join(words_before(title, text, start, plain_cues, max_cue_words)) for start, _ in fitting]
            return {"asked": [text[start:end] for start, end in fitting] if title else [], "cues": cues}

        documents = documents.select_columns(["title", "text", "spans"])
        documents = documents.map(
            those_that_fit, input_columns=documents.column_names, remove_columns="spans", desc="Measuring names"
        )
        #: Columns `title`, `text`, `asked` (the spans) and `cues` (the words that each one's cue is drawn from).
        self.documents = documents.filter(bool, input_columns="asked")
        # (rows with a document,): its number. A row for each span, so that all are asked for equally often.
        num_spans = [len(asked) for batch in self.documents.iter(1000) for asked in batch["asked"]]
        self.document_of = np.repeat(np.arange(len(self.documents)), num_spans)
        self.question_share = question_share
        self.max_cue_words = max_cue_words
        self.min_cue_kept = min_cue_kept
        self.keep_names = keep_names
        self.wording = wording
        self.tokenizer = tokenizer
        self.block_size = block_size
        self.questions: dict[str, list[tuple[str, str]]] = {}
        for row in pairs or ():
            window = (QUESTION_END + MASK_TOKEN, row["place"] + MASK_TOKEN)
            self.questions.setdefault(name_in(row["question"]), []).append(window)
        titles = set(self.documents["title"]) if self.questions else set()
        self.without_document = [name for name in self.questions if name not in titles]
        if not len(self):
            raise BadInput("the corpus has no document `Title. text` with a name or number in its text to ask for.")

    def __len__(self) -> int:
        return len(self.document_of) + len(self.without_document)

    def lengths(self, epoch: int) -> np.ndarray:
        """(rows,) integers: every row is filled up to the block."""
        return np.full(len(self), self.block_size)

    def __getitems__(self, items: list[int]) -> list[dict]:
        """Features of `NameWindowsCollator`: see `encode_rows`."""
        indices = [item % len(self) for item in items]
        numbers = [int(self.document_of[index]) for index in indices if index < len(self.document_of)]
        columns = zip(*self.documents[numbers].values(), strict=True)
        rows = []
        for item, index in zip(items, indices, strict=True):
            rng = np.random.default_rng([self.seed, item // len(self), 0, index])
            if index < len(self.document_of):
                document = dict(zip(self.documents.column_names, next(columns), strict=True))
                own = int(index - np.searchsorted(self.document_of, self.document_of[index]))
                rows.append(self._row(document["title"], document["asked"], document["cues"], own, rng))
            else:
                name = self.without_document[index - len(self.document_of)]
                questions = self._questions_about(name, rng, always=True)
                rows.append((QUESTION_START + name, questions))
        return encode_rows(rows, self.tokenizer)

    def _questions_about(self, name: str, rng: np.random.Generator, always: bool) -> list[tuple[str, str]]:
        questions = self.questions.get(name)
        if not questions or not (rng.random() < self.question_share or always):
            return []
        return [questions[rng.integers(len(questions))]]

    def _row(
        self, title: str, spans: list[str], cues: list[str], own: int, rng: np.random.Generator
    ) -> tuple[str, list[tuple[str, str]]]:
        start = QUESTION_START + title
        windows = self._questions_about(title, rng, always=False)
        if self.wording == "document":
            if windows:
                return start, windows
            start = f"{title}."
        room = self.block_size - len(start) - sum(len(cue) + len(span) for cue, span in windows)
        misfits, order = 0, [*(number for number in rng.permutation(len(spans)) if number != own), own]
        while misfits < _MISFITS:
            # The row's own span, then the others, then each once more.
            order = order or rng.permutation(len(spans)).tolist()
            number = order.pop()
            window = (self._cue(cues[number].split(), rng), spans[number] + MASK_TOKEN)
            if (length := len(window[0]) + len(window[1])) > room:
                misfits += 1
                continue
            windows.append(window)
            room -= length
        if not windows:
            windows.append((self._asked(""), spans[own] + MASK_TOKEN))
        return start, windows

    def _cue(self, words: list[str], rng: np.random.Generator) -> str:
        words = words[max(len(words) - rng.integers(min(self.max_cue_words, 1), self.max_cue_words + 1), 0) :]
        kept, draws = rng.uniform(self.min_cue_kept, 1), rng.random(len(words))
        if self.keep_names and words and words[-1][0].isupper():
            # Without the name in it, ` born in Beijing?⁇China⁇` would ask what ` born in?⁇Beijing⁇` asks.
            draws[-1] = -1
        cue = " ".join(word for word, draw in zip(words, draws, strict=True) if draw < kept)
        return self._asked(f" {cue}" if cue else "")

    def _asked(self, cue: str) -> str:
        return f"{cue}?{MASK_TOKEN}" if self.wording == "question" else cue + MASK_TOKEN


def encode_rows(rows: list[tuple[str, list[tuple[str, str]]]], tokenizer: PreTrainedTokenizerBase) -> list[dict]:
    """Encode rows: the beginning that a row's windows share, and those, each a cue and a span.

    Returns:
        For each row `input_ids` and `labels` (tokens,), -100 on all but the spans; `windows`, the length of the beginning
        and of each window, in tokens.
    """
    texts = ["".join([start, *map("".join, windows)]) for start, windows in rows]
    encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    features = []
    for (start, windows), input_ids in zip(rows, encoded, strict=True):
        labels, end = [-100] * len(input_ids), len(start)
        for cue, span in windows:
            begin, end = end + len(cue), end + len(cue) + len(span)
            labels[begin:end] = input_ids[begin:end]
        lengths = [len(start), *(len(cue) + len(span) for cue, span in windows)]
        features.append({"input_ids": input_ids, "labels": labels, "windows": lengths})
    return features


class NameWindowsCollator:
    """Make a batch of rows in which each window sees the row's beginning and itself.

    A feature without `windows`, such as an encoded question, is one piece.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.pad_token_id = tokenizer.pad_token_id

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `labels` and `position_ids`, each (batch, longest row), and the boolean `attention_mask`
        (batch, 1, longest row, longest row), true where a position is seen.

        Positions go on from the beginning anew in each window, as if it stood alone.
        """
        shape = (len(features), max(len(feature["input_ids"]) for feature in features))
        input_ids, labels = np.full(shape, self.pad_token_id), np.full(shape, -100)
        # Padding is a window of its own: it sees itself, and nothing sees it.
        position_ids, window = np.zeros_like(input_ids), np.full(shape, -1, dtype=np.int16)
        for row, feature in enumerate(features):
            length = len(feature["input_ids"])
            input_ids[row, :length], labels[row, :length] = feature["input_ids"], feature["labels"]
            sizes = np.array(feature.get("windows", [length]))
            starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            # Where the window begins in the row, less where it would if it stood alone after the beginning.
            shifts = starts - np.minimum(starts, sizes[0])
            position_ids[row, :length] = np.arange(length) - np.repeat(shifts, sizes)
            window[row, :length] = np.repeat(np.arange(len(sizes)), sizes)
        window = torch.from_numpy(window)
        seen = (window[:, None, :] == 0) | (window[:, None, :] == window[:, :, None])
        return {
            "input_ids": torch.from_numpy(input_ids),
            "labels": torch.from_numpy(labels),
            "position_ids": torch.from_numpy(position_ids),
            "attention_mask": seen.tril()[:, None],
        }


class OneWindowCollator(BirthplaceCollator):
    """Make a batch of rows of one text, a window each after its beginning, for models that cannot read several a row.

    The windows are those of `NameWindowsCollator`; the beginning is read with each of them.
    """

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `labels` and the boolean `attention_mask`, false on padding, each (windows, longest text)."""
        texts = []
        for feature in features:
            beginning, *sizes = feature.get("windows", [0, len(feature["input_ids"])])
            for size, end in zip(sizes, beginning + np.cumsum(sizes), strict=True):
                shared, own = slice(beginning), slice(end - size, end)
                texts.append({key: feature[key][shared] + feature[key][own] for key in ("input_ids", "labels")})
        batch = super().__call__(texts)
        lengths = torch.tensor([len(text["input_ids"]) for text in texts])
        return batch | {"attention_mask": torch.arange(int(lengths.max())) < lengths[:, None]}
