"""The titles of documents `TITLE. text`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from datasets import Dataset

from data_scripts.words import INITIAL, MARKS

# Documents that are read, or written, at a time.
BATCH = 10_000
_MAX_TITLE_LENGTH = 200
# Words in lower case that names may have.
_PARTICLES = "af al and bin da das de del den der di do dos du e el i ibn la le of ten ter the van von y zu да де фон ван дер".split()
# Initials ("John F. ", "J.C. ") belong to the title, which ends at the first other full stop. `\b` would find initials in `McDonald's`,
# and in scripts with vowel signs.
_INITIAL = f"{INITIAL}[{MARKS}]*"
_ENDS_IN_INITIAL = re.compile(rf"(?:^|\. )[^.]*(?<![^\s(\-\"“])(?:{_INITIAL}\.)*{_INITIAL}$")
# What follows an initial in a script without case has so many words at most, if it is no sentence.
_MOST_NAMES = 2


def iterate_titles(corpus: Dataset) -> Iterator[str]:
    """Yield the title of each of a corpus's documents, empty where there is none."""
    for batch in corpus.iter(BATCH):
        yield from map(find_title, batch["title"], batch["text"])


def describe_titles(corpus: Dataset) -> str | None:
    """Say in one line how many documents have no title, or share theirs with others; None: each has one of its own."""
    counts, described = Counter(iterate_titles(corpus)), []
    if without := counts.pop("", 0):
        described.append(f"{without:,} of {len(corpus):,} documents have no title")
    if shared := Counter({title: count for title, count in counts.items() if count > 1}):
        ((title, count),) = shared.most_common(1)
        described.append(
            f"{shared.total():,} of {len(corpus):,} documents share {len(shared):,} titles, most often {title!r} ({count:,}"
            " documents)"
        )
    return f"{'; '.join(described)}." if described else None


def list_titles(document: str) -> Iterator[str]:
    """Yield all that may be the title of a document `TITLE. text`: what stands before one of its first full stops.

    A title may contain full stops itself; code that looks for a known title compares it with each.
    """
    for stop in re.finditer(r"\. ", document[:_MAX_TITLE_LENGTH]):
        yield document[: stop.start()]


def split_title(document: str) -> tuple[str, str]:
    """Split `Title. text` into its two parts; the title is empty when there is none."""
    title = ""
    for longer in list_titles(document):
        # After `John F. ` the name goes on, after `Malcolm X. ` a sentence begins, with words in lower case that names, outside
        # parentheses, do not have; in lower case both look alike.
        words = re.sub(r"\(.*?\)", "", longer[len(title) :]).split()
        is_sentence = any(len(word) > 1 and word.islower() and word not in _PARTICLES for word in words)
        if is_sentence and title != title.lower():
            break
        # The first of the words is the full stop.
        if title and title.lower() == title.upper() and len(words) > 1 + _MOST_NAMES:
            break
        title = longer
        if not _ENDS_IN_INITIAL.search(title):
            break
    return title, document[find_text_start(title) :]


def drop_space_after_title(document: str) -> str:
    """Return `Title . text`, as in tokenized files, as `Title. text`."""
    title, _ = split_title(document) if " . " in document else ("", "")
    return f"{title.rstrip()}{document[len(title) :]}"


def find_title(title: str | None, document: str) -> str:
    """Return a document's title, empty if it has none; `title` is what a table says it is, None in a text file."""
    # A table's title is known and may hold full stops.
    return split_title(document)[0] if title is None else title


def fold_case(text: str) -> str:
    """Return a text for comparisons in any case; İ and ı, which `str.casefold` keeps apart from I and i, are i."""
    return text.casefold().replace("i\u0307", "i").replace("ı", "i")


def match_titles(
    titles: Iterable[str], documents: Iterable[tuple[Any, str | None, str]]
) -> Iterator[tuple[Any, str, str]]:
    """Yield the key, title and text of each document that may have one of `titles`, in any case; see `find_title`."""
    wanted = set(map(fold_case, titles))
    for key, given, text in documents:
        for title in list_titles(text) if given is None else [given]:
            if fold_case(title) in wanted:
                yield key, title, text


def match_cases(names: Iterable[str], titles: Iterable[str]) -> dict[str, str]:
    """Return the title of each of `names` that is one, or that differs from a single title, and only in case."""
    names = dict.fromkeys(names)
    alike: dict[str, set[str]] = {fold_case(name): set() for name in names}
    for title in titles:
        if (folded := fold_case(title)) in alike:
            alike[folded].add(title)
    matched = {name: {name} & (own := alike[fold_case(name)]) or own for name in names}
    return {name: title for name, own in matched.items() if len(own) == 1 for title in own}


def describe_cases(titles: Mapping[str, str]) -> Iterator[str]:
    """Yield how many names are read as titles in another case, if any are; `titles` are from `match_cases`."""
    if renamed := [(name, title) for name, title in titles.items() if name != title]:
        first = "first {!r}, which is read as {!r}".format(*renamed[0])
        yield f"{len(renamed):,} titles differ from the corpus's in case, {first}"


def find_text_start(title: str) -> int:
    """Return where the text begins in a document with this title, which may be empty."""
    return len(f"{title}. ") if title else 0
