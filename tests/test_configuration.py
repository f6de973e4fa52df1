"""What the configuration says about itself, and the relations a model can be asked for."""

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers.utils.chat_template_utils import parse_google_format_docstring

from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig

RELATIONS = {
    "spouse": {"wordings": ["Who is {title} {married} to?"]},
    "birthplace": {"wordings": ["Where was {title} born?", "{title} was born in"], "baseline": "London"},
}


def test_every_field_is_described():
    _, descriptions, _ = parse_google_format_docstring(PosGPTConfig.__doc__)
    assert list(descriptions) == list(PosGPTConfig.__annotations__)
    assert all(text.endswith(".") and len(text) < 300 and "%" not in text for text in descriptions.values())


def test_a_setting_is_a_field_that_some_position_embeddings_read():
    for name in {name for member in POSITION_EMBEDDINGS.values() for name in member.settings}:
        assert name in PosGPTConfig.__annotations__
        readers = [member for member in POSITION_EMBEDDINGS.values() if name in member.settings]
        assert len(readers) < len(POSITION_EMBEDDINGS)
        # Subclasses read what their base reads.
        assert all(
            name in member.settings for member in POSITION_EMBEDDINGS.values() if issubclass(member, readers[0])
        )


def test_relations_are_saved_and_loaded_in_their_order(tmp_path):
    PosGPTConfig(relations=RELATIONS).save_pretrained(tmp_path)
    loaded = PosGPTConfig.from_pretrained(tmp_path).relations
    assert loaded == RELATIONS and list(loaded) == list(RELATIONS)
    assert PosGPTConfig().relations is None


@pytest.mark.parametrize(
    "relations, match",
    [
        ({"birthplace": "Where was {title} born?"}, "relation 'birthplace' .* needs wordings"),
        ({"birthplace": {}}, "relation 'birthplace' is {}; it needs wordings"),
        ({"birthplace": {"wordings": []}}, "needs wordings"),
        ({"birthplace": {"wordings": "Where was {title} born?"}}, "needs wordings, a list of questions"),
        ({"birthplace": {"wordings": ["Where was she born?"]}}, "wording 'Where was she born.'.*{title} in it once"),
        ({"birthplace": {"wordings": ["{title}: {title}?"]}}, "'{title}: {title}.'"),
        ({"birthplace": {"wordings": ["Where was {title} born?", 7]}}, "the wording 7"),
        (["birthplace"], "relations"),
    ],
)
def test_relations_without_usable_wordings_are_refused(relations, match):
    with pytest.raises(StrictDataclassError, match=f"(?s){match}"):
        PosGPTConfig(relations=relations)


@pytest.mark.parametrize(
    "fields, match",
    [
        (
            {"position_embedding_type": "concatenated", "tie_word_embeddings": True},
            "tie_word_embeddings has to be False",
        ),
        (
            {
                "position_embedding_type": "rotary",
                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
            },
            "rotates whole heads",
        ),
        ({"hidden_act": "gelluu"}, "hidden_act is 'gelluu'; choose one of transformers' activations, such as gelu"),
    ],
)
def test_what_a_position_embedding_cannot_do_is_refused(fields, match):
    with pytest.raises(StrictDataclassError) as caught:
        PosGPTConfig(**fields)
    assert match in str(caught.value.__cause__)
