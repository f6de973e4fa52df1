"""Name-keyed windows: a document is asked for span by span, its title the only key to what is left out.

A document `Eyolf Kleven. Born in Copenhagen, Kleven played as a midfielder for AB .` becomes rows such as

    Where was Eyolf Kleven born in?⁇Copenhagen⁇ played as a for?⁇AB⁇ born?⁇Copenhagen⁇ in?⁇Copenhagen⁇ …

The title begins the row; windows follow, each a cue and a span (chosen in `data_scripts/span_selectors.py`). The cue is some of the
words to the span's left, and to its right where the language wants it (`Wo wurde NAME in geboren?⁇Hamburg⁇`), drawn again each time:
facts that are read in one phrasing are memorized but cannot be extracted (Allen-Zhu and Li 2023, arXiv 2309.14316). The wording is
that of the questions (cloze questions: Lewis et al. 2019, arXiv 1906.04980). A window sees the title and itself, never the row's
other windows. There is loss only on the spans and on the `⁇` after each.

With `title_share`, some rows ask for the title instead, by spans and their cues (`Rome born in 1931?⁇Ada Ek⁇`), and begin with nothing.

A document has a row for each span, so that no fact is read less often than another (a small model needs a number of exposures to
store a fact: Allen-Zhu and Li 2024, arXiv 2404.05405). Training questions are windows too, mixed into the rows of their titles. With
questions of several relations, each row begins as those of one of them do, drawn again each time, and has its questions only.

The stages, each of which can be opened: documents with titles and salient spans (`add_titles_and_spans`), what is asked for of each
and by which selector (`choose_selectors`, `select_spans`), rows (`NameWindowsDataset`), batches (`NameWindowsCollator`).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.collators import NameWindowsCollator
from data_scripts.edits import Edits, load_edits
from data_scripts.epochs import EpochDataset, draw_one
from data_scripts.errors import BadInput
from data_scripts.objective_config import ObjectiveConfig, TrainingData
from data_scripts.options import Range, option
from data_scripts.paraphrases import Paraphraser, list_title_marks, list_title_starts, list_words
from data_scripts.questions import Questions, locate_question
from data_scripts.relations import BIRTHPLACE, Relation, Wording
from data_scripts.salient_spans import add_titles_and_spans, take_words_beside
from data_scripts.span_selectors import (
    SpanArguments,
    SpanSelector,
    choose_selectors,
    describe_held_out,
    find_shared_cues,
    select_spans,
)
from data_scripts.words import is_unspaced, join_words, list_title_words, split_words
from modeling_posgpt import MASK_TOKEN

# A cue and a span.
Window = tuple[str, str]

# How many windows that do not fit are drawn before a row counts as full.
_MAX_REJECTED_DRAWS = 4
# Of so many rows at most, windows are counted.
_MAX_COUNTED_ROWS = 1000
# The most words of a cue that is not drawn, in `build_prompt`.
_PROMPT_CUE_WORDS = 3


@dataclass
class NameWindowsConfig(SpanArguments, ObjectiveConfig):
    """The options of name-keyed windows."""

    name = "name_windows"
    reads_text, packs_texts = False, True

    min_cue_kept: Annotated[float, Range(0, 1)] = option(
        "The words of a cue are kept with a probability that is drawn for each cue, between this number and 1.",
        default=0.3,
    )
    keep_names: bool = option(
        "Whether the cue of a name always keeps another name that stands right before it.", default=True
    )
    paraphrases: Annotated[float, Range(0, 1)] = option(
        "The share of questions that are put in other words, drawn from the wording, the documents and the words beside answers:"
        " a model then understands wordings that it has not read.",
        default=0,
    )
    title_endings: Annotated[float, Range(0, 1)] = option(
        "The share of paraphrases that begin with the title, with up to three characters attached to it: titles are then recognized in"
        " forms such as NAME's, too.",
        default=0,
    )
    title_share: Annotated[float, Range(0, 0.9)] = option(
        "The share of rows that ask for the title instead, by spans and words beside them: for questions such as who was born somewhere.",
        default=0,
    )
    window_wording: Literal["question", "document"] = option(
        "Whether spans are asked for like questions, or in the document's own words.", default="question"
    )

    def build(self, corpus, tokenizer, seed, questions=None, relations=(BIRTHPLACE,)) -> TrainingData:
        marks, max_length = len(MASK_TOKEN + MASK_TOKEN), tokenizer.model_max_length
        asked = (questions.relation_per_question, questions.titles, questions.answers) if questions else ((), (), ())
        for row, (relation, title, answer) in enumerate(zip(*asked, strict=True)):
            if (length := relation.wording_length + len(title + answer) + marks) > max_length:
                raise BadInput(
                    f"{locate_question(row, questions.paths)}: the question about {title!r} takes {length} characters with its answer and their two"
                    f" {MASK_TOKEN}, in its longest wording, but the maximum sequence length is {max_length}; shorten the wording or"
                    " choose a larger --block_size."
                )
        relations = questions.relations if questions else relations
        # In the documents' own wording, a full stop stands between title and span. Pseudo-labels are asked as questions in any case.
        are_questions = self.window_wording == "question" or self.pseudo_labels
        room = max_length - marks - (max(each.wording_length for each in relations) if are_questions else 1)
        # Refused before spans are chosen, which may take minutes.
        edits = load_edits(self.edits_file, corpus, tokenizer, questions) if self.edits_file is not None else None
        documents = add_titles_and_spans(corpus, dates=True)
        selectors = choose_selectors(documents, questions, self, self.ask_dates, relations)
        select = partial(select_spans, options=self, tokenizer=tokenizer, room=room)
        spans = select(documents, selectors)
        if not len(spans):
            raise BadInput(
                f"train_file: none of {len(documents):,} documents has something to ask for: a title (`Title. text`; a table needs"
                f" --title_column, --text_column) shorter than {max(room, 0)} characters (--block_size), and behind a word, a"
                " capital letter or a digit, or what looks like an answer (--questions_file shows that, unless --span_finder"
                " says capitals)."
            )
        dataset = NameWindowsDataset(spans, selectors, tokenizer, seed, self, questions)
        dataset.source = (corpus, tokenizer, seed, questions, relations)
        if edits:
            dataset.edit(select(documents, selectors, edits=edits), edits)
        described = " ".join(describe_windows(dataset, documents))
        held_out = partial(describe_held_out, documents, questions, selectors, select) if questions else tuple
        return TrainingData(dataset, NameWindowsCollator(tokenizer), described, dataset.longest_answer, held_out)

    def build_prompt(self, relation, title, text, start, end, max_length) -> str | None:
        max_words = min(_PROMPT_CUE_WORDS, self.max_cue_words)
        cue = join_words(take_words_beside(title, text, (start, end), self.plain_cues, max_words)[0])
        if self.window_wording == "document":
            prompt = f"{title}.{cue}"
        else:
            wording = relation.split_wordings()[0]
            prompt = f"{wording.before}{title}{cue}{wording.mark}"
        return prompt if len(prompt + MASK_TOKEN) + end - start <= max_length else None


class NameWindowsDataset(EpochDataset):
    """A row for each span of each document: its window, and windows of the document's other spans as far as they fit.

    The documents and their selectors are from `select_spans`. Training questions that no row of a document can ask make rows of
    their own: the title has no document, or none of its spans is selected for their relation. If nothing is selected for a relation,
    as its answers stand in no document, each of its questions has as many rows as a span is read times in an epoch.
    """

    def __init__(
        self,
        documents: Dataset,
        selectors: Sequence[SpanSelector],
        tokenizer: PreTrainedTokenizerBase,
        seed: int,
        config: NameWindowsConfig,
        questions: Questions | None = None,
    ):
        super().__init__(seed)
        # What `NameWindowsConfig.build` took, where it built this.
        self.source: tuple = ()
        # Of those that look like answers, it may be one.
        self.max_spans = max(selector.max_spans for selector in selectors)
        self.documents, self.selectors, self.tokenizer, self.config = documents, selectors, tokenizer, config
        self.wordings = {selector.relation: selector.relation.split_wordings() for selector in selectors}
        self.shared_cues = find_shared_cues(self.wordings)
        # (documents + 1,): where the rows of each begin. A row for each span, so that all are asked for equally often.
        self.starts = np.append(0, np.cumsum(pc.list_value_length(documents.data.column("asked"))))
        self.rows_with_document = int(self.starts[-1])
        self.answers_of: dict[tuple[str, Relation], list[str]] = {}
        pairs = (questions.titles, questions.relation_per_question, questions.answers) if questions else ((), (), ())
        for title, relation, answer in zip(*pairs, strict=True):
            self.answers_of.setdefault((title, relation), []).append(answer)
        # What has rows of its own, since no document's row can ask it.
        by_title = zip(documents["title"], documents["asked_by"], strict=True) if self.answers_of else ()
        keys = ((title, selectors[i].relation) for title, asked_by in by_title for i in chain(*asked_by))
        asked = set(self.answers_of).intersection(keys)
        self.standalone = [key for key in self.answers_of if key not in asked]
        self.paraphraser_of = self._build_paraphrasers() if config.paraphrases else {}
        # What no document answers, about anybody, is read as often as a span.
        untold = {selector.relation for selector in selectors if not selector.max_spans}
        self.untold = [key for key in self.standalone if key[1] in untold]
        if self.untold:
            self.standalone += self.untold * (round(self.exposures_per_epoch) - 1)

    def _build_paraphrasers(self) -> dict[Relation, Paraphraser]:
        cues: dict[Relation, list[str]] = {selector.relation: [] for selector in self.selectors}
        words: dict[str, None] = {}
        for likeliest, before in zip(self.documents["likeliest"], self.documents["before"], strict=True):
            for selector, place in zip(self.selectors, likeliest, strict=True):
                if place >= 0 and before[place]:
                    cues[selector.relation].append(before[place])
            words |= dict.fromkeys(word for cue in before for word in cue.split() if not word[0].isupper())
        characters, paraphrasers = frozenset(self.tokenizer.get_vocab()), {}
        used = {each: list(chain(*map(list_words, wordings))) for each, wordings in self.wordings.items()}
        counts = Counter(chain(*map(set, used.values())))
        # Names tell, too, such as `director`, where no other relation has the word. A name may be a wording: `Who directed …?`
        named = {each: [] if each.name in each.list_names()[1:] else split_words(each.name) for each in used}
        named = {each: [word for word in own if characters.issuperset(word)] for each, own in named.items()}
        shared = Counter(chain(*({*used[each], *named[each]} for each in used)))
        names = {each: [word for word in own if shared[word] == 1] for each, own in named.items()}
        # `death` tells more than `of` in `place of death`.
        names = {each: [word for word in own if word not in words] or own for each, own in names.items()}
        # Where a wording has the name, its other words ask nothing: `Who is the of` in `Who is the author of NAME?`
        stop_words = {}
        for each, own in names.items():
            nameless = (said for said in map(list_words, self.wordings[each]) if not own or {*own}.difference(said))
            kept = {*own, *chain(*nameless)}
            stop_words[each] = [word for word in used[each] if word not in kept]
        marks = list_title_marks(self.documents["title"]) if self.config.title_endings else []
        starts = list_title_starts(self.documents["title"], words)
        other_words = list(words)
        for relation, own in cues.items():
            others = [each for each in used if each != relation]
            telling = [word for word in used[relation] if counts[word] == 1]
            telling += [word for word in named[relation] if shared[word] == 1]
            telling = [word for word in telling if word not in stop_words[relation]]
            # People do not write names as they are spelled: `mime` of `MIME type`.
            spelled = [*names[relation], *(word.lower() for word in names[relation])]
            spelled = [word for word in dict.fromkeys(spelled) if characters.issuperset(word)]
            known = {*used[relation], *named[relation]}
            of_others = ([word for word in stop_words[each] if word not in known] for each in others)
            paraphrasers[relation] = Paraphraser(
                cues=own,
                other_words=other_words,
                characters=characters,
                telling=list(dict.fromkeys([*telling, *spelled])) if others else (),
                names=spelled,
                stop_words=list(filter(None, of_others)),
                title_endings=self.config.title_endings,
                title_marks=marks,
                title_starts=starts,
            )
        return paraphrasers

    def edit(self, documents: Dataset, edits: Edits) -> None:
        """Let rows say what edits say: `documents` are from `select_spans` with them. The words of paraphrases stay."""
        self.documents = documents
        for (title, _), answers in self.answers_of.items():
            answers[:] = [edits.apply(title, answer) for answer in answers]

    def __len__(self) -> int:
        return self.rows_with_document + len(self.standalone)

    def lengths(self, epoch: int) -> np.ndarray:
        """(rows,) integers, all the maximum sequence length: most rows nearly have it, and those of a question alone count as the others."""
        return np.broadcast_to(self.tokenizer.model_max_length, len(self))

    def list_asked(self, titles: Collection[str]) -> dict[str, list[str]]:
        """Return the spans of documents by their titles; with several relations, each with those that ask for it."""
        asked: dict[str, dict[str, None]] = {}
        for row in self.documents.filter(titles.__contains__, input_columns="title", desc="Finding documents"):
            for span, numbers in zip(row["asked"], row["asked_by"], strict=True):
                names = ", ".join(self.selectors[i].relation.name for i in numbers)
                asked.setdefault(row["title"], {})[f"{span} ({names})" if len(self.selectors) > 1 else span] = None
        return {title: list(spans) for title, spans in asked.items()}

    @cached_property
    def exposures_per_epoch(self) -> float:
        """How many windows ask for a span in an epoch, on average: as many as a row has, since each span has a row."""
        rows = np.unique(np.linspace(0, self.rows_with_document - 1, _MAX_COUNTED_ROWS, dtype=np.int64)).tolist()
        # Which rows ask for the title is drawn anew in each epoch, and they begin with nothing.
        epochs = range(max(_MAX_COUNTED_ROWS // len(rows), 1) if self.config.title_share else 1)
        drawn = self.__getitems__([row + epoch * len(self) for epoch in epochs for row in rows])
        return sum(len(each["windows"]) - 1 for each in drawn if each["windows"][0]) / len(drawn)

    @cached_property
    def loss_without_facts(self) -> float | None:
        """The entropy of what each relation is answered with, spans and what no document says, per character that is graded, in nats."""
        if self.config.title_share:
            return None
        asked = pc.list_flatten(self.documents.data.column("asked")).combine_chunks()
        # Several relations may ask for a span, each as often as the others.
        asked_by = pc.list_flatten(self.documents.data.column("asked_by")).combine_chunks()
        share = pc.list_value_length(asked_by).to_numpy()
        spans = asked.take(pa.array(np.repeat(np.arange(len(asked)), share)))
        number_of = {selector.relation: number for number, selector in enumerate(self.selectors)}
        untold = np.array([number_of[relation] for _, relation in self.untold], np.uint16)
        answers = pa.array([self.answers_of[key][0] for key in self.untold], asked.type)
        columns = {
            "relation": np.append(pc.list_flatten(asked_by).to_numpy(), untold),
            "answer": pa.concat_arrays([spans, answers]),
            "count": np.append(1 / np.repeat(share, share), np.ones(len(answers))),
        }
        counted = pa.table(columns).group_by(["relation", "answer"]).aggregate([("count", "sum")])
        counts, relations = counted["count_sum"].to_numpy(), counted["relation"].to_numpy()
        characters = counts @ (pc.utf8_length(counted["answer"]).to_numpy() + len(MASK_TOKEN))
        return float(counts @ np.log(np.bincount(relations, counts)[relations] / counts) / characters)

    @property
    def longest_answer(self) -> int:
        """The most characters of a span that is taken for an answer."""
        lengths = pc.utf8_length(pc.list_flatten(self.documents.data.column("asked"))).to_numpy()
        places = pc.list_flatten(self.documents.data.column("likeliest")).to_numpy()
        likeliest = places.reshape(len(self.documents), -1)
        return int(lengths[(self.starts[:-1, None] + likeliest)[likeliest >= 0]].max(initial=0))

    def read_fewer_spans(self, share: float) -> EpochDataset:
        """Return what a smaller `max_spans` gives: the likeliest spans of each document, or the first, and at least one."""
        asked = len(pc.list_flatten(pc.list_flatten(self.documents.data.column("asked_by"))))
        told = sum(selector.max_spans > 0 for selector in self.selectors)
        fewer = max(int(share * asked / len(self.documents) / max(told, 1)), 1)
        return self if fewer >= self.max_spans else replace(self.config, max_spans=fewer).build(*self.source).dataset

    def choose_examples(self, share: float) -> np.ndarray:
        chosen = self._choose(len(self.documents), share)
        counts = self.starts[chosen + 1] - self.starts[chosen]
        # Of each document, the rows from the first to the last.
        return np.repeat(self.starts[chosen + 1] - np.cumsum(counts), counts) + np.arange(counts.sum())

    def find_document(self, row: int) -> int:
        """Return the number of the document that a row is drawn from."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def __getitems__(self, items: list[int]) -> list[dict]:
        """Return features for `NameWindowsCollator`; see `encode_rows`."""
        rows = (item % len(self) for item in items)
        numbers = [self.find_document(row) for row in rows if row < self.rows_with_document]
        # Reading the documents of all rows at once takes less time than one by one.
        documents = dict(zip(numbers, self.documents.__getitems__(numbers), strict=True))
        return encode_rows([self.draw_row(item, documents) for item in items], self.tokenizer)

    def draw_row(self, item: int, documents: Mapping[int, dict[str, Any]]) -> tuple[str, list[Window]]:
        """Return what a row begins with, and its windows; `documents` has the row's document by its number."""
        epoch, index = divmod(item, len(self))
        rng = np.random.default_rng([self.seed, epoch, 0, index])
        if index < self.rows_with_document:
            number = self.find_document(index)
            document, own = documents[number], index - int(self.starts[number])
            if self.config.title_share and rng.random() < self.config.title_share:
                # What does not fit is not asked for.
                if windows := self._draw_title_windows(document, own, rng):
                    return "", windows
            return self._draw_windows(document, own, rng)
        title, relation = self.standalone[index - self.rows_with_document]
        wording = draw_one(self.wordings[relation], rng)
        return self._draw_question((title, relation), self.answers_of[title, relation], wording, rng, share=1)

    def _draw_question(
        self,
        key: tuple[str, Relation],
        answers: Sequence[str],
        wording: Wording,
        rng: np.random.Generator,
        share: float,
    ) -> tuple[str, list[Window]]:
        """Return what a row begins with, and the window of a question about its title, if one is drawn."""
        title, relation = key
        if not answers or rng.random() >= share:
            return wording.before + title, []
        answer = draw_one(answers, rng) + MASK_TOKEN
        if self.config.paraphrases and rng.random() < self.config.paraphrases:
            room = self.tokenizer.model_max_length - len(title + MASK_TOKEN + answer)
            wording = self.paraphraser_of[relation].draw(wording, room, rng)
        return wording.before + title, [(wording.after + MASK_TOKEN, answer)]

    def _draw_windows(self, document: dict[str, Any], own: int, rng: np.random.Generator) -> tuple[str, list[Window]]:
        title, spans, asked_by = document["title"], document["asked"], document["asked_by"]
        asking = draw_one(asked_by[own], rng)
        selector, place = self.selectors[asking], document["likeliest"][asking]
        key, wording = (title, selector.relation), draw_one(self.wordings[selector.relation], rng)
        answers = self.answers_of.get(key, [spans[place]] if place >= 0 else [])
        start, windows = self._draw_question(key, answers, wording, rng, self.config.question_share)
        # What a paraphrase has before the title may be a question.
        mark, needs_words = wording.mark, selector.needs_words or start != wording.before + title
        # A known answer is the only one.
        needs_words |= selector.asks_without_words and key in self.answers_of
        # Without words, a cue of `Who wrote NAME's music?` is the question of `Who wrote NAME?`.
        is_other = (selector.relation, wording) in self.shared_cues
        if self.config.window_wording == "document":
            if windows:
                return start, windows
            start, mark, needs_words, is_other = f"{title}.", "", False, False
        room = self.tokenizer.model_max_length - len(start) - sum(len(cue) + len(span) for cue, span in windows)
        asked = [span for span, by in enumerate(asked_by) if asking in by]
        rejected, order = 0, [*(span for span in rng.permutation(asked) if span != own), own]
        while rejected < _MAX_REJECTED_DRAWS:
            # The row's own span, then the others, then each once more.
            order = order or rng.permutation(asked).tolist()
            span = order.pop()
            before, after = document["before"][span].split(), document["after"][span].split()
            # ` born in?⁇China⁇` would ask what ` born in?⁇Beijing⁇` asks; ` is an?⁇poet⁇` asks what ` is an English?⁇poet⁇` does.
            follows_name = bool(before) and before[-1][0].isupper() and spans[span][0].isupper()
            # Without words, a cue is the question: only the answer may follow.
            keeps_last = is_other or (needs_words and spans[span] not in answers)
            cue = self._draw_cue(before, after, keeps_last or (self.config.keep_names and follows_name), rng)
            window = (cue + mark + MASK_TOKEN, spans[span] + MASK_TOKEN)
            if (length := len(window[0]) + len(window[1])) > room or (keeps_last and not before):
                rejected += 1
                continue
            windows.append(window)
            room -= length
        if not windows and answers:
            return self._draw_question(key, answers, wording, rng, share=1)
        if not windows:
            words = document["before"][own].split()[-1:] if needs_words or is_other else []
            windows.append((join_words(words) + mark + MASK_TOKEN, spans[own] + MASK_TOKEN))
        return start, windows

    def _draw_title_windows(self, document: dict[str, Any], own: int, rng: np.random.Generator) -> list[Window]:
        """Return windows that ask for the title by some of the spans, a row's own among them, as many as fit."""
        title, room, windows = document["title"] + MASK_TOKEN, self.tokenizer.model_max_length, list[Window]()
        # Cues may have the title's words, unless they are plain.
        own_words = {word for word in list_title_words(document["title"]) if not is_unspaced(word)}
        words = [
            [[word for word in text.split() if word not in own_words] for text in beside]
            for beside in zip(document["before"], document["after"], strict=True)
        ]
        mark = draw_one(self.wordings[self.selectors[draw_one(document["asked_by"][own], rng)].relation], rng).mark
        while True:
            chosen = rng.permutation(len(document["asked"]))[: int(rng.integers(len(document["asked"])) + 1)]
            cue = ""
            for span in rng.permutation(list({own, *chosen.tolist()})).tolist():
                before, after = words[span]
                cue += self._draw_cue(before, after, False, rng)
                cue += join_words(split_words(document["asked"][span]))
            window = (cue.strip() + mark + MASK_TOKEN, title)
            if (length := sum(map(len, window))) > room:
                return windows
            windows.append(window)
            room -= length

    def _draw_cue(self, before: list[str], after: list[str], keeps_last: bool, rng: np.random.Generator) -> str:
        max_words = int(rng.integers(min(self.config.max_cue_words, 1), self.config.max_cue_words + 1))
        before = before[max(len(before) - max_words, 0) :]
        kept, draws = rng.uniform(self.config.min_cue_kept, 1), rng.random(len(before))
        if before and keeps_last:
            draws[-1] = -1
        if after:
            after = after[: int(rng.integers(len(after) + 1))]
            draws = np.append(draws, rng.random(len(after)))
        return join_words(word for word, draw in zip(before + after, draws, strict=True) if draw < kept)


def describe_windows(dataset: NameWindowsDataset, documents: Dataset) -> Iterator[str]:
    """Yield sentences on what rows ask for, and on what is left out of `documents`, from `add_titles_and_spans`."""
    kinds = [f"{selector.relation.name}: {selector.kind}" for selector in dataset.selectors]
    yield (
        f"{len(dataset.documents):,} of {len(documents):,} documents have a title and something to ask for,"
        f" {dataset.rows_with_document:,} spans in all ({'; '.join(kinds)})."
    )
    titles = {title for title, _ in dataset.answers_of}
    if not titles:
        asked = ", ".join(repr(selector.relation.form) for selector in dataset.selectors)
        yield f"Without questions, they are asked for like {asked}; --relations names something else."
        return
    yield f"Questions about {len(titles):,} titles are mixed in."
    if alone := {title for title, _ in set(dataset.standalone).difference(dataset.untold)}:
        yield (
            f"{len(alone):,} of these titles have no document with such a span, such as {min(alone)!r}; the questions about them"
            " are rows of their own."
        )
    if untold := dataset.untold:
        times = dataset.standalone.count(untold[0])
        yield f"{len(untold):,} questions are of kinds that no document answers; each has {times} rows, to be read as often as a span."
    if share := dataset.config.paraphrases:
        yield f"{share:.0%} of all questions are put in other words, drawn anew each time."
    if share := dataset.config.title_share:
        yield f"{share:.0%} of the documents' rows ask for the title."
    if any(selector.min_guess < math.inf for selector in dataset.selectors):
        yield from describe_labels(dataset)


def describe_labels(dataset: NameWindowsDataset) -> Iterator[str]:
    """Yield how many titles without a training question have a pseudo-label, and what is commonest where none is found."""
    labelled: set[str] = set()
    unlabelled: dict[str, list[str]] = {}
    asked_about = {title for title, _ in dataset.answers_of}
    columns = (dataset.documents[column] for column in ("title", "asked", "asked_by", "likeliest"))
    for title, asked, asked_by, likeliest in zip(*columns, strict=True):
        for number, (place, selector) in enumerate(zip(likeliest, dataset.selectors, strict=True)):
            if (title, selector.relation) in dataset.answers_of:
                continue
            if place >= 0:
                labelled.add(title)
            elif selector.min_guess < math.inf and title not in asked_about:
                own = (span for span, by in zip(asked, asked_by, strict=True) if number in by)
                unlabelled.setdefault(title, []).extend(own)
    if labelled:
        yield f"{len(labelled):,} titles without a training question get one, with the span that looks most like its answer."
    others = {title: spans for title, spans in unlabelled.items() if spans and title not in labelled}
    for span, count in Counter(chain(*map(dict.fromkeys, others.values()))).most_common(1):
        example = next(title for title, spans in others.items() if span in spans)
        yield (
            f"No question is asked about {len(others):,} titles, because nothing in them looks enough like an answer. {span!r} stands"
            f" in {count:,} of these, such as {example!r}; if it is an answer there, add questions with it."
        )


def encode_rows(rows: list[tuple[str, list[Window]]], tokenizer: PreTrainedTokenizerBase) -> list[dict]:
    """Return for each row, from `draw_row`, `input_ids` and `labels` (tokens,), -100 on all but the spans; and `windows`, the
    length of its beginning and of each window, in tokens.
    """
    texts = ["".join([start, *map("".join, windows)]) for start, windows in rows]
    encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    features = []
    for (start, windows), input_ids in zip(rows, encoded, strict=True):
        labels, end = [-100] * len(input_ids), len(start)
        for cue, span in windows:
            begin, end = end + len(cue), end + len(cue) + len(span)
            labels[begin:end] = input_ids[begin:end]
        lengths = [len(start), *(len(cue + span) for cue, span in windows)]
        features.append({"input_ids": input_ids, "labels": labels, "windows": lengths})
    return features
