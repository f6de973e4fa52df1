"""The table of pretraining objectives that `--objective` looks up.

To add one, write a module with a class that derives from `ObjectiveConfig`, and give it a line here.
"""

from data_scripts.name_windows import NameWindowsConfig
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.span_corruption import SpanCorruptionConfig

OBJECTIVES: dict[str, type[ObjectiveConfig]] = {each.name: each for each in (SpanCorruptionConfig, NameWindowsConfig)}
DEFAULT_OBJECTIVE = next(iter(OBJECTIVES))
