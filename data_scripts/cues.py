"""The words beside a span of a document that its cue is drawn from, in their plainest form or as they are."""

import re
from collections.abc import Collection

from data_scripts.salient_spans import MONTH_NAMES
from data_scripts.titles import find_text_start
from data_scripts.words import PUNCTUATION, list_title_words, split_words


def simplify_words(words: list[str], known: set[str], readable: Collection[str] | None = None) -> list[str]:
    """Return a text's words in their plainest form.

    Words in `known` and punctuation around words are left out; any date or number becomes `0`, or `-0` after a dash; the
    first word loses the capital that it has as the first word of a sentence. Where the vocabulary `readable` (None: all
    characters) lacks a small letter, the capital stays; where it has no `0`, dates are left out.
    """
    bare = [word.strip(PUNCTUATION) for word in words]
    if bare and bare[0] not in known and bare[0][1:].islower():
        if readable is None or all(character in readable for character in bare[0].lower()):
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


def take_words_before(
    title: str, text: str, start: int, plain: bool, max_: int, readable: Collection[str] | None = None
) -> list[str]:
    """Return the words before a span that its cue is drawn from: at most the last `max_` after the title, simplified if `plain`."""
    # The title is in the row already and is not part of a cue.
    words = split_words(text[find_text_start(title) : start])
    words = simplify_words(words, list_title_words(title), readable) if plain else words
    return words[max(len(words) - max_, 0) :]


def take_words_after(
    title: str, text: str, end: int, plain: bool, max_: int, readable: Collection[str] | None = None
) -> list[str]:
    """Return the words after a span that its cue closes with: at most `max_` of the same sentence, simplified if `plain`."""
    words = split_words(re.split(r"\.\s|。", text[end:])[0]) if max_ else []
    return (simplify_words(words, list_title_words(title), readable) if plain else words)[:max_]
