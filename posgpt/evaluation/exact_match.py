"""What makes an answer right, everywhere in PosGPT."""

from collections.abc import Sequence

import numpy as np


def match_exactly(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return (predictions,) booleans: whether each prediction is its reference, character for character.

    Raises:
        ValueError: there are not as many references as predictions.
    """
    pairs = zip(predictions, references, strict=True)
    return np.array([prediction == reference for prediction, reference in pairs], dtype=bool)
