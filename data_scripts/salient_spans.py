"""What stands out in documents by a capital letter or a digit, and the words beside it that ask for it.

Names, and numbers and months, are salient spans, which REALM (Guu et al. 2020, arXiv 2002.08909) finds with a tagger.
"""

import re

from datasets import Dataset, Features, List, Value

from data_scripts.titles import find_text_start, find_title
from data_scripts.words import FULL_STOPS, MARKS, PUNCTUATION, UNSPACED, is_unspaced, list_title_words, split_words

# `2,373.38` is one number; `3.4.1990` and `12.1980` are dates.
_NUMBER = r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d{1,3})?(?![.,]\w)"
_UNSPACED_NAME = re.compile(rf"(?:[{UNSPACED}][{MARKS}]*){{2,}}")
_SENTENCE_END = re.compile(rf"\.\s|[{FULL_STOPS}]|．(?!\d)")
_OF_WORD = rf"[^\s/—–{re.escape(PUNCTUATION)}]"
_WORD = re.compile(rf"{_NUMBER}(?!{_OF_WORD})|(?<!\w)\w{_OF_WORD}*(?<!-)")
MONTHS = "January February March April May June July August September October November December".split()
# No set: `datasets`, whose cache is found by a hash, hashes the elements of a frozenset in another order in each process.
MONTH_NAMES = (*MONTHS, *(month[:3] for month in MONTHS), "Sept")
_SHORTEST_NAME = 3
# Start and end in a text.
Span = tuple[int, int]


def is_month(name: str) -> bool:
    """Return whether a name is a month's, and not somebody's such as `Jan Novak`."""
    return all(word in MONTH_NAMES for word in name.split())


def find_salient_spans(title: str, text: str, dates: bool) -> list[Span]:
    """Return start and end of the names in `text`, and with `dates` of numbers and months.

    A name is a run of capitalized words. Runs that share a word with the title are the person's own name; runs of fewer
    than three characters are initials or degrees. Both are left out.
    """
    known = list_title_words(title)
    runs: list[Span] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if not (match[0][0].isupper() or match[0][0].isdigit()):
            continue
        # A run goes on over single spaces; a word that begins with a digit is never part of one.
        if match[0][0].isupper() and runs and runs[-1][1] + 1 == start and text[start - 1] == " ":
            if text[runs[-1][0]].isupper():
                start, _ = runs.pop()
        runs.append((start, end))

    def is_wanted(name: str) -> bool:
        is_date = name[0].isdigit() or is_month(name)
        return known.isdisjoint(name.split()) and (dates if is_date else len(name) >= _SHORTEST_NAME)

    # The first word of the text has a capital for that reason, and no words to its left to ask with.
    return [(start, end) for start, end in runs if start > 0 and is_wanted(text[start:end])]


def add_titles_and_spans(corpus: Dataset, dates: bool) -> Dataset:
    """Add the columns `title` and `spans`, the salient spans' starts and ends in `text`, to a corpus."""

    def split(text: str, title: str | None) -> dict:
        title = find_title(title, text)
        begin = find_text_start(title)
        found = find_salient_spans(title, text[begin:], dates)
        return {"title": title, "spans": [(begin + start, begin + end) for start, end in found]}

    features = Features(corpus.features | {"title": Value("string"), "spans": List(List(Value("int32")))})
    return corpus.map(split, input_columns=["text", "title"], features=features, desc="Looking for names")


def simplify_words(words: list[str], known: set[str], readable: str | None = None) -> list[str]:
    """Return a text's words in their plainest form.

    Words in `known` and punctuation around words are left out; any date or number becomes `0`, or `-0` after a dash; the
    first word loses the capital that it has as the first word of a sentence. Where the vocabulary `readable` (None: all
    characters) lacks a small letter, the capital stays; where it has no `0`, dates are left out.
    """
    bare = [word.strip(PUNCTUATION) for word in words]
    if bare and bare[0] not in known and bare[0][1:].islower():
        if readable is None or set(bare[0].lower()) <= set(readable):
            bare[0] = bare[0].lower()
    plain: list[str] = []
    for word in bare:
        if word in MONTH_NAMES or any(map(str.isdigit, word)):
            word = "0" if readable is None or "0" in readable else ""
        if word == "0" and plain and not any(map(str.isalpha, plain[-1])):
            # ` -0 in?`, the second date of a range, is not ` 0 in?`.
            plain[-1] = plain[-1].removesuffix("0").replace("--", "-") + "0"
        elif word and word not in known:
            plain.append(word)
    return plain


def take_words_beside(
    title: str, text: str, span: Span, plain: bool, max_before: int, max_after: int = 0, readable: str | None = None
) -> tuple[list[str], list[str]]:
    """Return the words that a span's cue is drawn from, simplified if `plain`: the last ones after the title and before the
    span, and the first ones of the same sentence after it.
    """
    parts = [text[find_text_start(title) : span[0]], _SENTENCE_END.split(text[span[1] :])[0] if max_after else ""]
    known = list_title_words(title) if plain else set()
    if plain and any(map(is_unspaced, title)):
        # In a script without spaces, whole names: any word may have a character of one.
        for name in ("".join(title.split()), *_UNSPACED_NAME.findall(title)):
            parts = [part.replace(name, " ") for part in parts]
        known = {word for word in known if not is_unspaced(word)}
    before, after = map(split_words, parts)
    if plain:
        # The title is in the row already and is not part of a cue.
        before, after = simplify_words(before, known, readable), simplify_words(after, known, readable)
    return before[max(len(before) - max_before, 0) :], after[:max_after]
