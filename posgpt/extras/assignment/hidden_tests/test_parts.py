"""The hidden tests: the submission's functions have to return what those of the teacher's solution return.

SOLUTION=solution.py python -m pytest hidden_tests
"""

import os
import random
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

torch.manual_seed(0)
_random = random.Random(0)
_TEXT = "Ada Example was born in Lisbon on 12 May 1890, and died in Zürich . Ada Example was a poet, says Bo Sample (1931?) ."
_IDS = {symbol: id for id, symbol in enumerate("□⁇" + "".join(sorted(set("Where is Ada Example from?\nLisbon"))))}
_ANSWERS = ["London", "Rome", "London", "Rome", "Rome", "London", "Lima", "Oslo"]
# Two of eight are correct, some of the others nearly.
_PREDICTIONS = ["London", "Rome", "london", " Rome", "Rome.", "", "Oslo", "Paris"]

# For each part, its function and the arguments of each call.
CASES: dict[str, tuple[str, list[tuple]]] = {
    # Heads of several widths; the scores of the last are large.
    "attention": (
        "attend",
        [
            (factor * torch.randn(shape), torch.randn(shape), torch.randn(shape))
            for factor, *shape in ((1, 2, 4, 9, 8), (1, 1, 2, 33, 32), (1, 3, 1, 1, 4), (30, 1, 2, 12, 16))
        ],
    ),
    # Up to the course's maximum sequence length, and another base than the course's.
    "rotary": (
        "rotate",
        [
            (torch.randn(2, 4, 9, 8),), (torch.randn(1, 2, 128, 32),), (torch.randn(3, 1, 1, 4),),
            (torch.randn(1, 2, 16, 8), 500.0),
        ],
    ),
    # Documents of all lengths, each cut at several places.
    "span_corruption": (
        "corrupt_span",
        [
            (_TEXT[:length], [_random.random() for _ in range(3)], max_length)
            for length in range(1, len(_TEXT)) for max_length in (64, 128)
        ],
    ),
    # The vocabulary lacks some characters.
    "finetuning": (
        "encode_pair",
        [
            (f"Where is {name} from?", place, _IDS)
            for name, place in (("Ada Example", "Lisbon"), ("Zoë Öz", "Łódź"), ("Bo", ""))
        ],
    ),
    # Several ⁇ after the question, one, or none.
    "answer": (
        "extract_answer",
        [
            (f"Where is Ada from?⁇{written}",)
            for written in ("Rome⁇", "Rome⁇ Oslo⁇Lima⁇", "New York", "⁇Rome⁇", " St. Louis, Missouri ⁇\n", "")
        ],
    ),
    "accuracy": (
        "measure_accuracy",
        [(_PREDICTIONS, _ANSWERS), (_ANSWERS, _ANSWERS), (_PREDICTIONS, _ANSWERS, "Oslo")],
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def reference() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).resolve().parent.parent / "solution.py")))


@pytest.fixture(scope="session")
def solution() -> SimpleNamespace:
    # A submission that imports the solution's own library gets an ImportError.
    sys.modules.update(dict.fromkeys(("posgpt", "data_scripts", "modeling_posgpt", "transformers")))  # type: ignore[arg-type]
    try:
        return SimpleNamespace(**runpy.run_path(os.environ["SOLUTION"], run_name="solution"))
    except (Exception, SystemExit) as error:
        hint = (
            ""
            if isinstance(error, SyntaxError | ImportError)
            else '; what it runs belongs below if __name__ == "__main__":'
        )
        pytest.fail(f"it cannot be imported: {type(error).__name__}: {error}{hint}", pytrace=False)


@pytest.mark.parametrize("part", CASES)
def test_part(part: str, solution: SimpleNamespace, reference: SimpleNamespace) -> None:
    name, cases = CASES[part]
    for arguments in cases:
        expected = getattr(reference, name)(*arguments)
        result = getattr(solution, name)(*arguments)
        if isinstance(expected, str):
            call = f"{name}({', '.join(map(repr, arguments))})"
            assert result == expected, f"returned {result!r} where {expected!r} is correct: {call}"
        else:
            # A correct share may be the integer 1, and correct angles more precise than float32.
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4, check_dtype=False)
