"""The names that version 0.4 had in this module; they stand in `posgpt.evaluation.scoring` now."""

from posgpt.evaluation.scoring import Proportion as Share
from posgpt.evaluation.scoring import count_correct, describe_constant, describe_majority

__all__ = ["Share", "count_correct", "describe_constant", "describe_majority"]
