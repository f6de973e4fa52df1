"""The model PosGPT. Importing this package registers it with the Auto classes of transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from .answering_posgpt import Answer
from .bottleneck import BOTTLENECKS
from .configuration_posgpt import PosGPTConfig
from .modeling_posgpt import PosGPTForCausalLM, PosGPTModel, PosGPTPreTrainedModel
from .position_embeddings import POSITION_EMBEDDINGS
from .position_encoding import Place, PositionEncoding, Setting, register
from .tokenization_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

AutoConfig.register(PosGPTConfig.model_type, PosGPTConfig)
AutoModel.register(PosGPTConfig, PosGPTModel)
AutoModelForCausalLM.register(PosGPTConfig, PosGPTForCausalLM)
AutoTokenizer.register(PosGPTConfig, fast_tokenizer_class=PreTrainedTokenizerFast)


__all__ = [
    "BOTTLENECKS",
    "MASK_TOKEN",
    "PAD_TOKEN",
    "POSITION_EMBEDDINGS",
    "Answer",
    "Place",
    "PosGPTConfig",
    "PosGPTForCausalLM",
    "PosGPTModel",
    "PosGPTPreTrainedModel",
    "PositionEncoding",
    "Setting",
    "build_tokenizer",
    "register",
]
