"""The name that version 0.4 had in this module; it stands in `posgpt.evaluation.scoring` now."""

from posgpt.evaluation.scoring import match_exactly

__all__ = ["match_exactly"]
