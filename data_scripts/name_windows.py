"""Name-keyed windows: a document is asked for span by span, its title the only key to what is left out.

A document `Eyolf Kleven. Born in Copenhagen, Kleven played as a midfielder for AB .` becomes rows such as

    Where was Eyolf Kleven born in?⁇Copenhagen⁇ played as a for?⁇AB⁇ born?⁇Copenhagen⁇ in?⁇Copenhagen⁇ …

The title begins the row; windows follow, each a cue and a span. A span is salient (REALM, Guu et al. 2020, arXiv
2002.08909), recognized by its capital letter or digit, or looks like an answer. Its cue is some of the words to its left, and
to its right where the language wants it (`Wo wurde NAME in geboren?⁇Hamburg⁇`), drawn again each time, so that one sentence
gives many phrasings (Allen-Zhu and Li 2023, arXiv 2309.14316: facts that are read in one phrasing are memorized but cannot be
extracted). The wording is that of the questions (cloze questions: Lewis et al. 2019, arXiv 1906.04980), so that reading and
asking look alike. A window sees the title and itself, never the row's other windows, so the title is read once for all of
them. There is loss only on the spans and on the `⁇` after each.

A document has a row for each span, so that no fact is read less often than another (a small model needs a number of
exposures to store a fact: Allen-Zhu and Li 2024, arXiv 2404.05405). Training questions are windows too,
` born?⁇Copenhagen⁇`, mixed into the rows of the titles they ask about.

With questions of several relations, each row begins as those of one of them do, drawn again each time; a question is in rows
of its own relation only. What the rows of a relation ask for follows from its training answers (`data_scripts/asking_rules.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from data_scripts.asking_rules import AskedSpans, AskingRule, find_spans, list_asking_rules
from data_scripts.collators import RightPaddingCollator, pad_right
from data_scripts.cues import take_words_after, take_words_before
from data_scripts.epochs import EpochDataset
from data_scripts.errors import BadInput
from data_scripts.learned_spans import Span
from data_scripts.objective_config import ObjectiveConfig, TrainingData
from data_scripts.options import Range, option
from data_scripts.questions import Questions, locate_question
from data_scripts.relations import BIRTHPLACE, Wording
from data_scripts.titles import BATCH, find_other_case, list_titles_without_document
from data_scripts.words import join_words
from modeling_posgpt import MASK_TOKEN

# A cue and a span.
Window = tuple[str, str]
Drawn = TypeVar("Drawn")

_FEATURES = Features(
    {
        "title": Value("string"),
        "asked": List(Value("string")),
        "asked_by": List(List(Value("uint16"))),
        "before": List(Value("string")),
        "after": List(Value("string")),
    }
)
# How many windows that do not fit are drawn before a row counts as full.
_MISFITS = 4
# The most words of a cue that is not drawn, in `build_prompt`.
_PROMPT_CUE_WORDS = 3


@dataclass
class NameWindowsConfig(AskedSpans, ObjectiveConfig):
    """The options of name-keyed windows."""

    name = "name_windows"
    reads_text = False

    min_cue_kept: Annotated[float, Range(0, 1)] = option(
        "The words of a cue are kept with a probability that is drawn for each cue, between this number and 1.",
        default=0.3,
    )
    keep_names: bool = option(
        "Whether the cue of a name always keeps another name that stands right before it.", default=True
    )
    window_wording: Literal["question", "document"] = option(
        "Whether spans are asked for like questions, or in the document's own words.", default="question"
    )

    def list_own_texts(self, relations) -> list[str]:
        return [part for relation in relations for wording in relation.split_wordings() for part in wording]

    def build(
        self, corpus, tokenizer, seed, questions=None, one_text_per_row=False, relations=(BIRTHPLACE,)
    ) -> TrainingData:
        documents, rules = find_spans(corpus, questions, self.ask_dates, self.span_finder, self.max_spans, relations)
        dataset = NameWindowsDataset(documents, tokenizer, seed, self, questions, rules)
        collator = OneWindowCollator if one_text_per_row else NameWindowsCollator
        description = " ".join(dataset.describe(corpus, documents, questions))
        return TrainingData(dataset, collator(tokenizer), description)

    def build_prompt(self, relation, title, text, start, end, max_length) -> str | None:
        most = min(_PROMPT_CUE_WORDS, self.max_cue_words)
        cue = join_words(take_words_before(title, text, start, self.plain_cues, most))
        if self.window_wording == "document":
            return f"{title}.{cue}"
        wording = relation.split_wordings()[0]
        return f"{wording.before}{title}{cue}{wording.mark}"


class NameWindowsDataset(EpochDataset):
    """A row for each span of each document: its window, and windows of the document's other spans as far as they fit.

    Args:
        documents: From `add_titles_and_spans`; those without a title, or without a span that fits the maximum sequence
            length together with the title, are left out.
        tokenizer: From `build_tokenizer`; its `model_max_length` is the maximum sequence length.
        seed: Determines all random draws.
        config: The options.
        questions: Training questions with answers, or None. Those that no row of a document can ask make rows of their own: the
            title has no document, or none of its spans is asked for by their relation.
        rules: What rows ask for, from `find_spans`; by default those of the questions' relations, by capitals.

    Raises:
        BadInput: there is nothing to ask.
    """

    def __init__(
        self,
        documents: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        seed: int,
        config: NameWindowsConfig | None = None,
        questions: Questions | None = None,
        rules: Sequence[AskingRule] | None = None,
    ):
        super().__init__(seed)
        self.config = config = config or NameWindowsConfig()
        self.tokenizer = tokenizer
        self.max_length = tokenizer.model_max_length
        self.rules = rules = rules or list_asking_rules(questions, config.ask_dates, config.max_spans)
        #: For each rule, the wordings that its rows are drawn in.
        self.wordings = [rule.relation.split_wordings() for rule in rules]
        # In the documents' own wording, rows begin with the title and a full stop.
        longest = max(
            len(".") if config.window_wording == "document" else len(wording.before + wording.mark)
            for wordings in self.wordings
            for wording in wordings
        )
        room = self.max_length - longest - len(MASK_TOKEN + MASK_TOKEN)
        #: How many characters a title may have, beside a span of one.
        self.longest_title = room - 1
        #: What may be asked of each document that has something to ask for.
        self.documents = self._prepare_documents(documents, room)
        # (documents + 1,): where the rows of each begin. A row for each span, so that all are asked for equally often.
        self.starts = np.zeros(len(self.documents) + 1, np.int64)
        np.cumsum(pc.list_value_length(self.documents.data.column("asked")), out=self.starts[1:])
        self.rows_with_document = int(self.starts[-1])
        # By title, the rows of its questions.
        self.questions: dict[str, list[int]] = {}
        if questions:
            number_of = {rule.relation: number for number, rule in enumerate(rules)}
            self.asks = [number_of[relation] for relation in questions.asked]
            self.answers = questions.answers
            for row, title in enumerate(questions.titles):
                self.questions.setdefault(title, []).append(row)
                self._check_length(row, title, questions)
        # By title, the numbers of the rules that its questions have and none of its documents' rows.
        self.asked_apart = self._list_rules_of_questions() if self.questions else {}
        self.titles_apart = list(self.asked_apart)
        if not self.rows_with_document:
            raise BadInput(self._describe_nothing(documents))

    def _prepare_documents(self, documents: Dataset, room: int) -> Dataset:
        """Find what may be asked of documents; those without anything are left out.

        Args:
            room: How many characters title, cue and span may have together.

        Returns:
            Columns `title`, `asked` (the spans), `asked_by` (the numbers of the rules that each is asked for with), `before`
            and `after` (the words that each one's cue is drawn from).
        """
        # `datasets` finds its cache by what the functions below refer to: not this object.
        config, rules = self.config, self.rules
        # In an order that is the same in each process.
        readable = "".join(sorted(self.tokenizer.get_vocab()))
        needs_word = [
            any(self._needs_words(number, wording) for wording in wordings)
            for number, wordings in enumerate(self.wordings)
        ]

        def fits(title: str, span: Sequence[int], cue: str = "") -> bool:
            return bool(title) and len(title) + span[1] - span[0] + len(cue) <= room

        def prepare(title: str, text: str, *spans_of: list[Span]) -> dict | None:
            asked_by: dict[Span, list[int]] = {}
            for number, spans in enumerate(spans_of):
                for span in spans:
                    if fits(title, span):
                        asked_by.setdefault(span, []).append(number)
            row: dict[str, Any] = {"title": title, "asked": [], "asked_by": [], "before": [], "after": []}
            for start, end in sorted(asked_by):
                before = take_words_before(title, text, start, config.plain_cues, config.max_cue_words, readable)
                has_word = before and fits(title, (start, end), join_words(before[-1:]))
                numbers = [number for number in asked_by[start, end] if has_word or not needs_word[number]]
                if not numbers:
                    continue
                after = take_words_after(title, text, end, config.plain_cues, config.max_words_after, readable)
                row["asked"].append(text[start:end])
                row["asked_by"].append(numbers)
                row["before"].append(" ".join(before))
                row["after"].append(" ".join(after))
            return row if row["asked"] else None

        def prepare_all(titles: list[str], texts: list[str], spans: list[list[list[int]]]) -> dict[str, list]:
            salient = [
                [(start, end) for start, end in own if fits(title, (start, end))]
                for title, own in zip(titles, spans, strict=True)
            ]
            of_rules = [rule.choose_spans(titles, texts, salient) for rule in rules]
            rows = list(filter(None, map(prepare, titles, texts, *of_rules)))
            return {column: [row[column] for row in rows] for column in _FEATURES}

        return documents.map(
            prepare_all,
            batched=True,
            input_columns=["title", "text", "spans"],
            remove_columns=documents.column_names,
            features=_FEATURES,
            desc="Measuring names",
        )

    def list_long_titles(self, documents: Dataset) -> list[str]:
        """Return the titles in `documents` that no row has room for."""
        titles = documents.data.column("title")
        return titles.filter(pc.greater(pc.utf8_length(titles), self.longest_title)).to_pylist()

    def _describe_nothing(self, documents: Dataset) -> str:
        untitled = pc.sum(pc.equal(documents.data.column("title"), "")).as_py()
        long = len(self.list_long_titles(documents))
        rest = len(documents) - untitled - long
        if untitled >= max(long, rest):
            fix = "begin each line with the title, a full stop and a space, or give a table (--title_column, --text_column)"
        elif long >= rest:
            fix = "choose a larger --block_size"
        elif self.questions and self.config.span_finder == "capitals":
            fix = "choose another --span_finder"
        elif self.questions:
            fix = "give training questions whose answers stand in the documents in the same words: they show what else to ask for"
        else:
            fix = "training questions (--questions_file) show what else to ask for"
        return (
            f"train_file: none of {len(documents):,} documents has something to ask for. {untitled:,} are not of the form"
            f" `Title. text`, {long:,} have a title longer than the {max(self.longest_title, 0)} characters that a row has room"
            f" for, and {rest:,} have no text that looks like an answer, or stands out by a capital letter or a digit, behind a"
            f" word; {fix}."
        )

    def __len__(self) -> int:
        return self.rows_with_document + len(self.titles_apart)

    def lengths(self, epoch: int) -> np.ndarray:
        """Return (rows,) integers: rows are filled nearly up to the maximum sequence length; few hold a question alone."""
        return np.broadcast_to(self.max_length, len(self))

    def list_asked(self, documents: int) -> dict[str, list[str]]:
        """Return the spans of the first documents, by title; with several relations, each with those that ask for it."""
        asked: dict[str, list[str]] = {}
        for row in self.documents.take(min(documents, len(self.documents))):
            for span, numbers in zip(row["asked"], row["asked_by"], strict=True):
                names = ", ".join(self.rules[number].relation.name for number in numbers)
                asked.setdefault(row["title"], []).append(f"{span} ({names})" if len(self.rules) > 1 else span)
        return asked

    def describe(self, corpus: Dataset, documents: Dataset, questions: Questions | None) -> Iterator[str]:
        """Yield sentences on what rows ask for, and on what is left out.

        Args:
            corpus: What `documents` were made of.
        """
        yield (
            f"{len(self.documents):,} of {len(corpus):,} documents have a title and something to ask for,"
            f" {self.rows_with_document:,} spans in all ({'; '.join(self.describe_asked(questions))})."
        )
        if questions:
            yield f"Questions about {len(self.questions):,} titles are mixed in."
        else:
            asked = ", ".join(repr(rule.relation.form) for rule in self.rules)
            yield f"Without questions, they are asked for like {asked}; --relations names something else."
        if self.titles_apart:
            yield (
                f"{len(self.titles_apart):,} of these titles have no document with such a span; the questions about them are rows of"
                " their own."
            )
        if long := self.list_long_titles(documents):
            yield (
                f"Titles too long for a row of {self.max_length} characters, whose documents are not read: {len(long):,}, such as"
                f" {long[0][:60]!r}; a larger --block_size has room for them."
            )
        if without := list_titles_without_document(self.questions, documents):
            yield f"Titles without any document: {len(without):,}, such as {without[0]!r}."
            if other_case := find_other_case(without, documents):
                asked, title = next(iter(other_case.items()))
                yield (
                    f"{len(other_case):,} of them differ from a document's title in case alone, such as {asked!r} from {title!r}."
                )
            if len(without) == len(self.questions):
                yield "No question is about a document: write titles as the corpus does."

    def describe_asked(self, questions: Questions | None) -> list[str]:
        """Say for each rule what its rows ask for, and how many of the training answers that leaves out."""
        if not questions:
            return [rule.kind for rule in self.rules]
        of_titles = self.documents.select_columns(["title", "asked", "asked_by"]).filter(
            questions.answers_of.__contains__, input_columns="title", desc="Finding documents"
        )
        # By title and rule, the spans that are asked for.
        asked: dict[tuple[str, int], list[str]] = {}
        for row in of_titles:
            for span, numbers in zip(row["asked"], row["asked_by"], strict=True):
                for number in numbers:
                    asked.setdefault((row["title"], number), []).append(span)
        described = []
        for number, rule in enumerate(self.rules):
            own = questions.select(rule.relation)
            pairs = list(dict.fromkeys(zip(own.titles, own.answers, strict=True)))
            missed = [(title, answer) for title, answer in pairs if answer not in asked.get((title, number), ())]
            said = rule.kind
            if missed:
                title, answer = missed[0]
                instead = asked.get((title, number), [])
                said += f", which miss {len(missed):,} of {len(pairs):,} training answers, such as {answer!r} ({title}"
                if instead:
                    said += f", where {', '.join(map(repr, instead))} {'are' if len(instead) > 1 else 'is'} asked for"
                said += ")"
            described.append(said)
        return described

    def choose_examples(self, share: float) -> np.ndarray:
        chosen = self._choose(len(self.documents), share)
        counts = self.starts[chosen + 1] - self.starts[chosen]
        # Of each document, the rows from the first to the last.
        return np.repeat(self.starts[chosen + 1] - np.cumsum(counts), counts) + np.arange(counts.sum())

    def name_document(self, example: int) -> str:
        """Return the title of the document that a row is drawn from, or that its question asks about."""
        if example < self.rows_with_document:
            return self.documents[self.find_document(example)]["title"]
        return self.titles_apart[example - self.rows_with_document]

    def find_document(self, row: int) -> int:
        """Return the number of the document that a row is drawn from."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def __getitems__(self, items: list[int]) -> list[dict]:
        """Return features for `NameWindowsCollator`; see `encode_rows`."""
        indices = [item % len(self) for item in items]
        numbers = [self.find_document(index) for index in indices if index < self.rows_with_document]
        documents = zip(numbers, zip(*self.documents[numbers].values(), strict=True), strict=True)
        rows = []
        for item, index in zip(items, indices, strict=True):
            rng = np.random.default_rng([self.seed, item // len(self), 0, index])
            if index < self.rows_with_document:
                number, columns = next(documents)
                document = dict(zip(self.documents.column_names, columns, strict=True))
                rows.append(self._draw_row(document, index - int(self.starts[number]), rng))
            else:
                name = self.titles_apart[index - self.rows_with_document]
                number = draw_one(self.asked_apart[name], rng)
                wording = draw_one(self.wordings[number], rng)
                rows.append((wording.before + name, self._draw_question(name, number, wording, rng, always=True)))
        return encode_rows(rows, self.tokenizer)

    def _list_rules_of_questions(self) -> dict[str, list[int]]:
        """Return for each title that has some the rules of its questions that its documents' rows do not have."""
        left = {title: dict.fromkeys(self.asks[row] for row in rows) for title, rows in self.questions.items()}
        for batch in self.documents.select_columns(["title", "asked_by"]).iter(BATCH):
            for title, asked_by in zip(batch["title"], batch["asked_by"], strict=True):
                for number in chain(*asked_by) if title in left else ():
                    left[title].pop(number, None)
        return {title: list(numbers) for title, numbers in left.items() if numbers}

    def _check_length(self, row: int, title: str, questions: Questions) -> None:
        """Check that a question fits, with its answer, in whichever wording it is drawn."""
        length = questions.asked[row].measure_question(title, self.answers[row])
        if length > self.max_length:
            raise BadInput(
                f"{locate_question(row, questions.paths)}: in its relation's longest wording, question and answer take {length}"
                f" characters with their two {MASK_TOKEN}, but the maximum sequence length is {self.max_length}; shorten the"
                " wording or choose a larger --block_size."
            )

    def _needs_words(self, number: int, wording: Wording) -> bool:
        """Whether the cues of a rule's rows have to keep a word, which in the documents' wording none has."""
        return self.config.window_wording == "question" and self.rules[number].needs_words(wording)

    def _draw_question(
        self, name: str, number: int, wording: Wording, rng: np.random.Generator, always: bool
    ) -> list[Window]:
        rows = [row for row in self.questions.get(name, ()) if self.asks[row] == number]
        if not rows or not (rng.random() < self.config.question_share or always):
            return []
        answer = self.answers[rows[rng.integers(len(rows))]]
        return [(wording.after + MASK_TOKEN, answer + MASK_TOKEN)]

    def _draw_row(self, document: dict[str, Any], own: int, rng: np.random.Generator) -> tuple[str, list[Window]]:
        title, spans, asked_by = document["title"], document["asked"], document["asked_by"]
        number = draw_one(asked_by[own], rng)
        wording = draw_one(self.wordings[number], rng)
        needs_words = self._needs_words(number, wording)
        start = wording.before + title
        windows = self._draw_question(title, number, wording, rng, always=False)
        if self.config.window_wording == "document":
            if windows:
                return start, windows
            start = f"{title}."
        room = self.max_length - len(start) - sum(len(cue) + len(span) for cue, span in windows)
        asked = [span for span, numbers in enumerate(asked_by) if number in numbers]
        misfits, order = 0, [*(span for span in rng.permutation(asked) if span != own), own]
        while misfits < _MISFITS:
            # The row's own span, then the others, then each once more.
            order = order or rng.permutation(asked).tolist()
            span = order.pop()
            before, after = document["before"][span].split(), document["after"][span].split()
            keeps_last = needs_words or self._follows_name(before, spans[span])
            window = (self._draw_cue(before, after, keeps_last, wording, rng), spans[span] + MASK_TOKEN)
            if (length := len(window[0]) + len(window[1])) > room:
                misfits += 1
                continue
            windows.append(window)
            room -= length
        if not windows:
            words = document["before"][own].split()[-1:] if needs_words else []
            windows.append((self._end_cue(join_words(words), wording), spans[own] + MASK_TOKEN))
        return start, windows

    def _follows_name(self, before: list[str], span: str) -> bool:
        """Whether a span is a name right after another: ` born in?⁇China⁇` would ask what ` born in?⁇Beijing⁇` asks.

        ` is an?⁇poet⁇` asks for nothing else than ` is an English?⁇poet⁇`.
        """
        return self.config.keep_names and bool(before) and before[-1][0].isupper() and span[0].isupper()

    def _draw_cue(
        self, before: list[str], after: list[str], keeps_last: bool, wording: Wording, rng: np.random.Generator
    ) -> str:
        most = int(rng.integers(min(self.config.max_cue_words, 1), self.config.max_cue_words + 1))
        before = before[max(len(before) - most, 0) :]
        kept, draws = rng.uniform(self.config.min_cue_kept, 1), rng.random(len(before))
        if before and keeps_last:
            draws[-1] = -1
        if after:
            after = after[: int(rng.integers(len(after) + 1))]
            draws = np.append(draws, rng.random(len(after)))
        words = [word for word, draw in zip(before + after, draws, strict=True) if draw < kept]
        return self._end_cue(join_words(words), wording)

    def _end_cue(self, cue: str, wording: Wording) -> str:
        return cue + (wording.mark if self.config.window_wording == "question" else "") + MASK_TOKEN


def draw_one(values: Sequence[Drawn], rng: np.random.Generator) -> Drawn:
    """Draw one of several values; a single one takes no random number."""
    return values[int(rng.integers(len(values)))] if len(values) > 1 else values[0]


def encode_rows(rows: list[tuple[str, list[Window]]], tokenizer: PreTrainedTokenizerBase) -> list[dict]:
    """Encode rows, each the beginning that its windows share and those windows, each a cue and a span.

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


class NameWindowsCollator(RightPaddingCollator):
    """Make a batch of rows in which each window sees the row's beginning and itself.

    A feature without `windows`, such as an encoded question, is one piece.
    """

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `labels` and `position_ids`, each (batch, longest row), and the boolean `attention_mask`
        (batch, 1, longest row, longest row), true where a position is seen.

        The positions of each window continue those of the row's beginning, as if the window stood alone.
        """
        positions, windows = [], []
        for feature in features:
            sizes = np.array(feature.get("windows", [len(feature["input_ids"])]))
            starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            # How far a window is moved from where it would be if it stood alone after the beginning.
            shifts = starts - np.minimum(starts, sizes[0])
            positions.append(np.arange(sizes.sum()) - np.repeat(shifts, sizes))
            windows.append(np.repeat(np.arange(len(sizes)), sizes))
        # Padding is a window of its own: it sees itself, and nothing else sees it.
        window = pad_right(windows, -1)
        seen = (window[:, None, :] == 0) | (window[:, None, :] == window[:, :, None])
        batch = super().__call__(features)
        return batch | {"position_ids": pad_right(positions, 0), "attention_mask": seen.tril()[:, None]}


class OneWindowCollator(RightPaddingCollator):
    """Make a batch of rows of one text, a window each after its beginning, for models that cannot read several per row.

    The windows are those of `NameWindowsCollator`; the beginning is read again with each of them.
    """

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `labels` and the boolean `attention_mask`, false on padding, each (windows, longest text), and
        `texts_of_rows` (rows,), how many of these texts each row has become.
        """
        texts, counts = [], []
        for feature in features:
            beginning, *sizes = feature.get("windows", [0, len(feature["input_ids"])])
            counts.append(len(sizes))
            for size, end in zip(sizes, beginning + np.cumsum(sizes), strict=True):
                shared, own = slice(beginning), slice(end - size, end)
                texts.append({key: feature[key][shared] + feature[key][own] for key in ("input_ids", "labels")})
        lengths = torch.tensor([len(text["input_ids"]) for text in texts])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        return super().__call__(texts) | {"attention_mask": mask, "texts_of_rows": torch.tensor(counts)}
