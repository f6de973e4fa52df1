"""Questions in other words: some of a wording's own, of those beside likely answers, and any others, in any order around the title.

A model that is asked in one wording alone takes all of its words for part of the question. Where words are dropped, added and moved,
it learns which of them tell what is asked, and answers in wordings that it has never read.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from data_scripts.epochs import draw_one
from data_scripts.relations import Wording
from data_scripts.words import MARKS, is_unspaced, join_words, split_words
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN

# Other words in a paraphrase, at most.
_MAX_OTHER_WORDS = 6
# How often a paraphrase that does not begin with the title begins with a capital.
_CAPITALIZED = 0.9
# How often it has the relation's name among other wordings' stop words.
_NAMED = 0.5
# How often its first word is one that titles begin with: `Under whose direction` is else taken for the title `Under Fire`.
_TITLE_START = 0.3
# The most characters that are attached to a title.
_MAX_ENDING = 3
# How often a paraphrase ends as its wording does; otherwise with another mark or, as often, with none.
_OWN_MARK = 0.6
_MARKS = "?.:!？。：！؟।"
# From the first mark behind a letter to the end of the word.
_TITLE_MARK = re.compile(rf"(?<=[\w{MARKS}])[^\w\s{MARKS}]\S{{,{_MAX_ENDING - 1}}}$")


def list_title_marks(titles: Iterable[str]) -> list[str]:
    """Return what stands behind words in titles, as often as it does: `:`, `'s` and `,` in `Star Trek II: Khan's Wrath, Retold`."""
    found = [_TITLE_MARK.search(word) for title in titles for word in title.split()]
    return [mark[0] for mark in found if mark]


def list_title_starts(titles: Iterable[str], words: Container[str]) -> list[str]:
    """Return words that titles begin with, such as `Under`, and that `words` has in lower case: they may also begin a question."""
    starts, whole = set[str](), set[str]()
    for title in titles:
        first, *rest = title.split(maxsplit=1)
        (starts if rest else whole).add(first)
    return sorted(each for each in starts - whole if each[0].isupper() and each[0].lower() + each[1:] in words)


def list_words(wording: Wording) -> list[str]:
    """Return a wording's own words, without the marks that it begins and ends with."""
    return split_words(wording.before.lstrip("¿¡")) + split_words(wording.after.removesuffix(wording.mark))


@dataclass(frozen=True)
class Paraphraser:
    """Draws paraphrases of the wordings of a relation.

    Args:
        cues: The words beside what looks like answers, each with spaces between them.
        other_words: Words of the documents.
        characters: Those that the tokenizer has.
        telling: Words of the wordings and of the relation's name that tell what is asked, one of which is always there; none where
            nothing else is asked for.
        names: Those of the relation's name, which tell it whatever other words there are.
        stop_words: For each other relation whose wordings have some, words that tell nothing.
        title_endings: How often the title comes first, with some characters attached.
        title_marks: Those that words in titles have attached: none of them tells where a title ends.
        title_starts: Words that titles begin with: none of them tells where a title begins.
    """

    cues: Sequence[str]
    other_words: Sequence[str]
    characters: frozenset[str]
    telling: Sequence[str] = ()
    names: Sequence[str] = ()
    stop_words: Sequence[Sequence[str]] = ()
    title_endings: float = 0
    title_marks: Sequence[str] = ()
    title_starts: Sequence[str] = ()

    @cached_property
    def _attachable(self) -> list[str]:
        return sorted(each for each in self.characters - {MASK_TOKEN, PAD_TOKEN} if not each.isspace())

    def _draw_ending(self, rng: np.random.Generator) -> str:
        """Return what words in titles have attached, the end of a word, or any characters; sometimes none."""
        if self.title_marks and rng.random() < 0.5:
            return draw_one(self.title_marks, rng)
        number = int(rng.integers(_MAX_ENDING + 1))
        if self.other_words and rng.random() < 0.5:
            word = draw_one(self.other_words, rng)
            return word[max(len(word) - number, 0) :]
        return "".join(self._attachable[place] for place in rng.integers(len(self._attachable), size=number))

    def draw(self, wording: Wording, room: int, rng: np.random.Generator) -> Wording:
        """Return words to stand before and after a title, together at most `room` characters."""
        cue = draw_one(self.cues, rng).split() if self.cues else []
        kept, name = rng.random(), ""
        own: Sequence[str] = list_words(wording)
        if self.names and self.stop_words and rng.random() < _NAMED:
            # In `What is the year of NAME?`, `is the of` ask nothing, even if another relation's wording alone has them.
            name = draw_one(self.names, rng)
            own = draw_one(self.stop_words, rng)
        words = [word for word in own if rng.random() < kept]
        if self.telling and set(self.telling).isdisjoint(words):
            words.insert(int(rng.integers(len(words) + 1)), name or draw_one(self.telling, rng))
        more = [word for word in cue if rng.random() < kept]
        if self.other_words:
            places = rng.integers(len(self.other_words), size=rng.integers(_MAX_OTHER_WORDS + 1))
            more += [self.other_words[place] for place in places]
        for word in more:
            if len(" ".join([*words, word])) < room - _MAX_ENDING - len("  ?"):
                words.append(word)
        if rng.random() < 0.5:
            rng.shuffle(words)
        mark = wording.mark
        if rng.random() >= _OWN_MARK:
            marks = [each for each in _MARKS if each in self.characters]
            mark = draw_one(marks, rng) if marks and rng.random() < 0.5 else ""
        title_is_first = self.title_endings > 0 and rng.random() < self.title_endings
        ending = self._draw_ending(rng) if title_is_first else ""
        split = 0 if title_is_first else int(rng.integers(len(words) + 1))
        if split and self.title_starts and rng.random() < _TITLE_START:
            words.insert(0, draw_one(self.title_starts, rng))
            split += 1
        if len(" ".join([ending, *words])) + len("  ") + len(mark) > room:
            return wording
        before, after = join_words(words[:split]).lstrip(), ending + join_words(words[split:])
        if before and before[0].upper() in self.characters and rng.random() < _CAPITALIZED:
            before = before[0].upper() + before[1:]
        if before and (wording.before.endswith(" ") or not is_unspaced(before[-1])):
            before += " "
        return Wording(before, after + mark)
