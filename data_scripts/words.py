"""Words in any script: a character of a script without spaces is a word."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from unicodedata import category

# Thai and Lao, Burmese, Khmer, Japanese and Chinese, without their digits.
UNSPACED = r"\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f\u1780-\u17df\u17ea-\u17ff\u3005\u3007\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
# A letter that may be an initial: a syllable of Korean, kana or a Chinese character is a word.
INITIAL = r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
# End sentences in scripts of their own; `.` does so before a space alone, and `．` before no digit.
FULL_STOPS = "।॥۔։。｡።။។៕"
# Stands around words without being part of them.
PUNCTUATION = f'(),.;:!?¿¡"“”„«»‹›[]{{}}…،؛؟，、；：！？（）「」『』《》．､｢｣〈〉【】〔〕፣፤፥፦፧՝၊{FULL_STOPS}'
_NO_FULL_STOP = PUNCTUATION.replace(".", "")
_MARKS = (code for code in range(0x20000) if category(chr(code)) in ("Mn", "Mc"))
_RUNS = [[chr(code) for _, code in run] for _, run in groupby(enumerate(_MARKS), lambda item: item[1] - item[0])]
# Vowel signs, accents and the like, which `re` does not count as parts of words: without them, every word in Hindi would end at
# its first vowel sign. As ranges, through which `re` searches faster.
MARKS = "".join(f"{run[0]}-{run[-1]}" for run in _RUNS)
# Stand inside words of Persian, Sinhala and Bengali without being letters (ZWNJ, ZWJ).
JOINERS = r"\u200c\u200d"
# A character of a word of a script with spaces.
_LETTER = rf"(?:[^\W{UNSPACED}]|[{MARKS}])"
# A character of a script without spaces with its marks, any other word, a space or a punctuation mark.
WORD = re.compile(rf"[{UNSPACED}][{MARKS}]*|{_LETTER}+(?:[{JOINERS}]+{_LETTER}+)*|\W")
# What matches where no word of a script with spaces goes on to the left, and no word to the right.
WORD_START = (
    rf"(?<![^\W{UNSPACED}])(?<!(?![{UNSPACED}])[{MARKS}])"
    rf"(?<![^\W{UNSPACED}][{JOINERS}])(?<!(?![{UNSPACED}])[{MARKS}][{JOINERS}])"
)
WORD_END = rf"(?![{JOINERS}]?{_LETTER})"
_START, _END = re.compile(WORD_START), re.compile(WORD_END)
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")


def is_unspaced(character: str) -> bool:
    """Return whether a text begins with a character of a script without spaces."""
    return _UNSPACED_CHARACTER.match(character) is not None


def split_words(text: str) -> list[str]:
    """Split a text at spaces, and at every character of a script without spaces, which is a word of its own."""
    if not _UNSPACED_CHARACTER.search(text):
        return text.split()
    return list(chain(*(WORD.findall(part) if _UNSPACED_CHARACTER.search(part) else [part] for part in text.split())))


def list_word_spans(text: str, longest: int | None = None) -> list[tuple[int, int]]:
    """Return start and end of all spans of a text that begin and end with a word, of at most `longest` words and marks."""
    words = [match.span() for match in WORD.finditer(text) if not match[0].isspace()]
    return [(start, end) for first, (start, _) in enumerate(words) for _, end in words[first:][:longest]]


def list_title_words(title: str) -> set[str]:
    """Return a title's words without the punctuation around them, but with the full stops of initials."""
    return {word.strip(_NO_FULL_STOP) for word in split_words(title)} - {""}


def join_words(words: Iterable[str]) -> str:
    """Join words as they would continue a text: each after a space, unless it or the one before it is of a script without."""
    text, spaced = "", True
    for word in words:
        is_spaced = not is_unspaced(word)
        text += f" {word}" if spaced and is_spaced else word
        spaced = is_spaced
    return text


def find_words(words: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each place where one of `words` stands, not as a part of longer words; the empty one nowhere."""
    # A pattern takes longer to compile than a document takes to search.
    for word in filter(None, words):
        end = 0
        while (start := text.find(word, end)) >= 0:
            end = start + len(word)
            if _START.match(text, start) and _END.match(text, end):
                yield start, end


def has_words(text: str, words: str) -> bool:
    """Return whether words stand in a text, not as a part of longer words; the empty one stands nowhere."""
    return any(find_words([words], text))
