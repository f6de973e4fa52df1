"""What the configuration says about itself, and what it refuses."""

import importlib
import math
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForCausalLM
from transformers.utils.chat_template_utils import parse_google_format_docstring

from model_helpers import SIZES, tiny_model
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM

RELATIONS = {
    "spouse": {"wordings": ["Who is {title} {married} to?"]},
    "birthplace": {"wordings": ["Where was {title} born?", "{title} was born in"], "baseline": "London"},
}


def test_every_field_is_described():
    _, descriptions, _ = parse_google_format_docstring(PosGPTConfig.__doc__)
    assert list(descriptions) == list(PosGPTConfig.__annotations__)
    assert all(text.endswith(".") and len(text) < 300 and "%" not in text for text in descriptions.values())


def test_a_setting_is_a_field_that_some_position_embeddings_read():
    members = POSITION_EMBEDDINGS.values()
    for name in {name for member in members for name in member.settings}:
        assert (name in PosGPTConfig.__annotations__) == all(each.settings.get(name) is None for each in members)
        readers = [member for member in members if name in member.settings]
        assert len(readers) < len(members)
        # Subclasses read what their base reads.
        assert all(member in readers for member in members if issubclass(member, readers[0]))


def test_configurations_differ_by_what_only_some_encodings_have():
    one, other = (PosGPTConfig(position_embedding_type="fire", fire_threshold=least) for least in (4, 9))
    assert one != other and one == PosGPTConfig(position_embedding_type="fire", fire_threshold=4)
    assert one != PosGPTConfig() == PosGPTConfig()


def test_relations_are_saved_and_loaded_in_their_order(tmp_path):
    tiny_model("none", relations=RELATIONS).save_pretrained(tmp_path)
    assert "relations" not in (tmp_path / "config.json").read_text(encoding="utf-8")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).config.relations
    assert loaded == RELATIONS and list(loaded) == list(RELATIONS)
    assert PosGPTConfig().relations is None


def of(positions: str, **fields) -> dict:
    return {"position_embedding_type": positions, **fields}


def rope(**parameters) -> dict:
    return of("rotary", rope_parameters=parameters)


def ask(*wordings: object, **relation) -> dict:
    return {"relations": {"birthplace": {"wordings": list(wordings), **relation}}}


@pytest.mark.parametrize(
    "fields, match",
    [
        (of("alphabetical"), "'alphabetical'; choose one of learned, .*rotary"),
        (of("rope"), "'rope'; choose one of .*; RoPE is 'rotary'"),
        ({"num_attention_heads": 7}, "hidden_size.*256.*not a multiple of num_attention_heads.*7"),
        ({"num_attention_heads": 0}, "at least 1"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_act": "gelluu"}, "hidden_act is 'gelluu'; choose an activation of transformers, such as gelu"),
        ({"embd_pdrop": 1}, "embd_pdrop, a dropout rate, is 1"),
        ({"position_initializer_range": -1}, "position_initializer_range, a standard deviation, is -1"),
        ({"position_initializer_range": math.nan}, "position_initializer_range, a standard deviation, is nan"),
        (of("sinusoidal", hidden_size=33, num_attention_heads=3), "33 has to be even"),
        (of("concatenated", position_share=1.0), "position_share is 1.0.*none to the tokens"),
        (of("concatenated", tie_word_embeddings=True), "tie_word_embeddings has to be False"),
        (of("relative_bias", relative_attention_max_distance=0), "relative_attention_max_distance is 0"),
        (of("rotary", hidden_size=24), "an even head size, .* is 3"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "'learned' does not use"),
        (rope(rope_type="bogus"), "'bogus'; choose one of default, linear"),
        (rope(rope_type="linear", factor="x"), "factor 'x'; choose at least 1"),
        (rope(factor=2.0), "needs a rope_type"),
        (rope(rope_theta=0), "rope_theta 0; choose a number above 0"),
        (rope(partial_rotary_factor=0), "partial_rotary_factor 0; choose a share of the 32 dimensions"),
        (rope(partial_rotary_factor=1.5), "partial_rotary_factor 1.5; choose"),
        (rope(partial_rotary_factor=0.1), "partial_rotary_factor 0.1; choose .* an even number of them"),
        (rope(rope_type="dynamic", factor=2.0, partial_rotary_factor=1 / 16), "at least 4"),
        (rope(rope_type="proportional", partial_rotary_factor="x"), "partial_rotary_factor 'x'; choose"),
        (rope(rope_type="proportional", factor=0), "'proportional' have factor 0; choose at least 1"),
        (
            rope(rope_type="longrope", short_factor=[1.0] * 16, long_factor=[2.0]),
            "long_factor .2.0.; give a list of 16",
        ),
        (
            rope(rope_type="longrope", short_factor=[1.0] * 16, long_factor=[0.0] * 16),
            "long_factor .*; choose numbers above 0",
        ),
        (rope(rope_type="llama3", factor=8), "low_freq_factor None; choose a number above 0"),
        (
            rope(rope_type="llama3", factor=8, low_freq_factor=4, high_freq_factor=1),
            "low_freq_factor < high_freq_factor",
        ),
        (rope(rope_type="yarn", factor=4, beta_fast=0.5), "choose beta_slow < beta_fast"),
        (rope(rope_type="yarn", factor=4, attention_factor=-1.0), "attention_factor -1.0; choose a number above 0"),
        (rope(rope_type="yarn", factor=4, original_max_position_embeddings="64"), "'64'; choose a number above 0"),
        (of("xpos", xpos_scale_base=0), "xpos_scale_base is 0; choose at least 1"),
        (of("xpos", is_causal=False), "is_causal has to be True"),
        (of("grape_m", hidden_size=24), "an even head size, .* is 3"),
        ({"bottleneck_size": 0}, "bottleneck_size is 0; choose 1 to"),
        ({"bottleneck_type": "hourglass"}, "'hourglass'; choose one of perceiver, strided"),
        ({"bottleneck_size": 8, "num_hidden_layers": 1}, "num_hidden_layers of at least 2"),
        ({"bottleneck_size": 8, "is_causal": False}, "is_causal"),
        ({"relations": ["birthplace"]}, "relations"),
        (
            {"relations": {"birthplace": {"wordings": "Where was {title} born?"}}},
            "needs wordings, a list of questions",
        ),
        ({"relations": {7: {"wordings": ["Where was {title} born?"]}}}, "relation 7 has a name.*not text"),
        (ask(), "needs wordings"),
        ({"relations": {"together": {"wordings": ["Where is {title}?"]}}}, "stands for all relations"),
        (ask("Where was she born?"), "wording 'Where was she born.'.*{title} once"),
        (ask("{title}?"), "'{title}.'.*and other words"),
        (ask("Where was {title} born?", 7), "wording 7"),
        (ask("Where was {title} born?", baseline=7), "a baseline that is not text"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_with_the_reason(fields, match):
    with pytest.raises(StrictDataclassError, match=f"(?s){match}"):
        PosGPTConfig(**fields)
    # An odd head size suits learned positions, and the deepest models known have 1,000 layers.
    PosGPTConfig(hidden_size=24, num_hidden_layers=1_000, embd_pdrop=0, bottleneck_size=128)


def test_what_is_changed_when_loading_is_checked_and_gets_its_defaults(tmp_path):
    PosGPTForCausalLM(PosGPTConfig(position_embedding_type="none", **SIZES)).save_pretrained(tmp_path)
    scaled = {"rope_type": "yarn", "factor": 4.0}
    before = dict(scaled)
    rotary = PosGPTForCausalLM.from_pretrained(tmp_path, position_embedding_type="rotary", rope_parameters=scaled)
    assert scaled == before
    assert rotary.config.rope_parameters["rope_theta"] == 10000.0 and rotary.config.rope_parameters["factor"] == 4.0
    # The same parameters, set later.
    later = PosGPTConfig(position_embedding_type="rotary", **SIZES)
    later.rope_parameters = {"rope_type": "yarn", "factor": 4.0}
    assert PosGPTForCausalLM(later).config.rope_parameters == rotary.config.rope_parameters
    assert torch.isfinite(rotary(torch.ones(1, 5, dtype=torch.long)).logits).all()
    assert PosGPTConfig.from_pretrained(tmp_path, position_embedding_type="t5").t5_num_buckets > 1
    with pytest.raises(StrictDataclassError) as refused:
        PosGPTConfig.from_pretrained(tmp_path, position_embedding_type="rotray")
    assert "choose one of" in str(refused.value.__cause__)
    # What a configuration does not have is left to the model.
    _, unused = PosGPTConfig.from_pretrained(tmp_path, is_causal=False, other=1, return_unused_kwargs=True)
    assert unused == {"other": 1}


def test_a_file_that_a_saved_model_could_not_import_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    begin = 'from modeling_posgpt import {names}\n\n\n@register("{name}")\nclass Mine(PositionEncoding):\n    """Mine."""\n'
    for module, names, match in (
        ("mine_one", "PositionEncoding, PosGPTConfig, register", "mine_one.py imports PosGPTConfig"),
        ("mine_two", "PositionEncoding, register\nimport modeling_posgpt as m", "mine_two.py imports modeling_posgpt"),
        ("composition", "PositionEncoding, register", "has a file composition.py of PosGPT's own"),
        ("mine_three", "PositionEncoding, register", None),
    ):
        (tmp_path / f"{module}.py").write_text(begin.format(names=names, name=module))
        try:
            importlib.import_module(module)
            config = PosGPTConfig(position_embedding_type=module, **SIZES)
            folder = tmp_path / f"saved_{module}"
            folder.mkdir()
            (folder / "positions_of_mine.py").write_text("")
            if match is None:
                config.save_pretrained(folder)
                # What somebody else keeps there stays.
                assert {"positions_of_mine.py", "mine_three.py"} <= {file.name for file in folder.iterdir()}
            else:
                with pytest.raises(ValueError, match=match):
                    config.save_pretrained(folder)
        finally:
            POSITION_EMBEDDINGS.pop(module, None)
            sys.modules.pop(module, None)
