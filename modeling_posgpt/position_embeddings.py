"""The position encodings of this package or model: importing a file registers what it defines.

`save_pretrained` writes this file with the lines of a model's own encodings alone.
"""

# ruff: noqa: F401
# isort: skip_file
from .position_encoding import POSITION_EMBEDDINGS
from .positions_learned import PosGPTConcatenatedEmbedding, PosGPTLearnedEmbedding
from .positions_rotary import PosGPTRotaryEmbedding
from .positions_sinusoidal import PosGPTSinusoidalEmbedding
from .positions_relative_bias import PosGPTRelativeBias
from .positions_alibi import PosGPTAlibi
from .positions_none import PosGPTNoEmbedding
from .positions_t5 import PosGPTT5Bias
from .positions_fox import PosGPTForgettingAttention
from .positions_pope import PosGPTPolarEncoding
from .positions_canon import PosGPTCanon
from .positions_cope import PosGPTContextualEncoding
from .positions_kerple import PosGPTKerple
from .positions_fire import PosGPTFire
from .positions_shaw import PosGPTShawVectors
from .positions_dape import PosGPTDape
from .positions_ssmax import PosGPTScalableSoftmax
from .positions_xpos import PosGPTXPosEmbedding
from .positions_grape_m import PosGPTMultiplicativeGrape
from .positions_selective_rope import PosGPTSelectiveRotation
from .positions_path import PosGPTHouseholderEncoding
from .positions_randomized import PosGPTRandomizedPositions
