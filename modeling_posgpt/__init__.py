"""The model PosGPT. Importing this package registers it with the Auto classes of transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

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
# Parts of transformers look models up by class name: with `label_smoothing_factor`, Trainer shifts the labels only for
# the causal language models listed here.
MODEL_MAPPING_NAMES[PosGPTConfig.model_type] = PosGPTModel.__name__
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[PosGPTConfig.model_type] = PosGPTForCausalLM.__name__

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
