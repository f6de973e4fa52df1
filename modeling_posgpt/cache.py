"""What transformers calls the cache of keys and values: `past_key_values` before version 5.24, `cache` since."""

from inspect import signature

from transformers.masking_utils import create_causal_mask
from transformers.utils.deprecation import deprecate_kwarg

#: The name of the cache among the arguments of transformers' functions and in their outputs.
CACHE = "cache" if "cache" in signature(create_causal_mask).parameters else "past_key_values"
# The old name is deprecated where transformers' own models deprecate it; a version that has passed means no warning.
_REMOVED = "5.40.0" if CACHE == "cache" else "5.0"
#: Lets a method with an argument `cache` be called with `past_key_values` instead.
take_past_key_values = deprecate_kwarg("past_key_values", version=_REMOVED, new_name="cache")
