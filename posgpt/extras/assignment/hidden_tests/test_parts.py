"""The hidden tests: the submission's functions have to return what PosGPT's own code returned when `cases.pt` was written.

python -m pytest hidden_tests --solution solution.py
"""

from pathlib import Path
from types import ModuleType

import pytest
import torch

CASES = torch.load(Path(__file__).with_name("cases.pt"))


@pytest.mark.parametrize("part", CASES)
def test_part(part: str, solution: ModuleType) -> None:
    for arguments, expected in CASES[part]["cases"]:
        name = CASES[part]["function"]
        result = getattr(solution, name)(*arguments)
        if isinstance(expected, str):
            call = f"{name}({', '.join(map(repr, arguments))})"
            assert result == expected, f"returned {result!r} where {expected!r} is right: {call}"
        else:
            # A right share may be the integer 1, and right angles more precise than float32.
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4, check_dtype=False)
