"""The table of pretraining objectives that `--objective` looks up.

To add one, write a module with a class that derives from `ObjectiveConfig`, and give it a line here.
"""

from data_scripts.causal_lm import CausalLMConfig
from data_scripts.name_windows import NameWindowsConfig
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.span_corruption import SpanCorruptionConfig

_ALL = (SpanCorruptionConfig, NameWindowsConfig, CausalLMConfig)
OBJECTIVES: dict[str, type[ObjectiveConfig]] = {each.name: each for each in _ALL}
DEFAULT_OBJECTIVE = next(iter(OBJECTIVES))
