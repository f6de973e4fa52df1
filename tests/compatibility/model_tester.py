"""transformers' own tests of a model, `ModelTesterMixin`, for every position embedding and every bottleneck.

In a folder with the `tests` of transformers' source distribution:
python -m pytest model_tester.py
"""

import unittest

from tests.test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask

from modeling_posgpt import BOTTLENECKS, POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM, PosGPTModel


class PosGPTModelTester:
    """What the mixin asks for: a small configuration, inputs for it, and the sizes of both."""

    is_training = True
    batch_size, seq_length = 13, 7
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, parent: unittest.TestCase, **settings):
        self.parent, self.settings = parent, settings
        # The mixin compares the shapes of attention weights and hidden states with these.
        self.encoder_seq_length = self.key_length = self.seq_length

    def get_config(self) -> PosGPTConfig:
        return PosGPTConfig(
            vocab_size=99, hidden_size=self.hidden_size, num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads, max_position_embeddings=64, **self.settings,
        )  # fmt: skip

    def prepare_config_and_inputs_for_common(self):
        shape = [self.batch_size, self.seq_length]
        return self.get_config(), {"input_ids": ids_tensor(shape, 99), "attention_mask": random_attention_mask(shape)}


class PosGPTTests(ModelTesterMixin):
    all_model_classes = (PosGPTModel, PosGPTForCausalLM)
    settings: dict = {}
    # The mixin of generation is not in the source distribution; tests/test_modeling.py tries generation.
    test_generation_tester_mixin_inheritance = None

    def setUp(self):
        self.model_tester = PosGPTModelTester(self, **self.settings)


MODELS = {name: {"position_embedding_type": name} for name in POSITION_EMBEDDINGS}
MODELS |= {
    f"{name}_bottleneck": {"position_embedding_type": "rotary", "bottleneck_type": name, "bottleneck_size": 4}
    for name in BOTTLENECKS
}
# The mixin takes a configuration that has `rope_parameters` for one that uses them; PosGPT refuses them elsewhere.
ROPE_TESTS = [name for name in dir(ModelTesterMixin) if name.startswith("test_model_rope_")]
# Latents attend to other numbers of vectors than the mixin expects; tests/test_bottleneck.py says to how many.
SHAPE_TESTS = ["test_attention_outputs"]
for name, settings in MODELS.items():
    members = {"settings": settings}
    if settings["position_embedding_type"] != "rotary":
        members |= dict.fromkeys(ROPE_TESTS)
    if settings["position_embedding_type"] == "concatenated":
        # It refuses weights that are tied, which this test asks for: the tokens' vectors are narrower than the states.
        members["test_tied_weights_keys"] = None
    if "bottleneck_size" in settings:
        members |= dict.fromkeys(SHAPE_TESTS)
    globals()[f"Test_{name}"] = type(f"Test_{name}", (PosGPTTests, unittest.TestCase), members)
