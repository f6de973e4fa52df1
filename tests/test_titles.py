import pytest
import torch
from torch.testing import assert_close

from data_scripts.errors import BadInput
from modeling_posgpt import PosGPTForCausalLM
from posgpt.evaluation.predictions import Prediction
from posgpt.training.saved_models import load_model
from studies import titles
from study_helpers import read_rows


def test_titles_match_where_their_own_document_has_the_closest_state():
    in_documents = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    swapped = in_documents[:, [1, 0, 2, 3, 4]]
    # Neither what all titles share nor the length of a state counts.
    in_questions = torch.cat([2 * in_documents + 7, swapped])
    in_documents = in_documents.expand(2, -1, -1)
    assert_close(titles.match_titles(in_questions, in_documents, [0, 1, 2, 3]), [1.0, 0.5])
    assert_close(titles.match_titles(in_questions, in_documents, [0]), [1.0, 0.0])


def test_states_are_those_of_the_last_mention(tiny_pretrained):
    model, tokenizer = load_model(str(tiny_pretrained["none"]))
    text = "Ada Ek. Ada Ek sang"
    with torch.inference_mode():
        ((title, states),) = titles.read_states(model.eval(), tokenizer, [text], ["Ada Ek"])
        expected = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
    assert title == "Ada Ek" and states.shape == (model.config.num_hidden_layers + 1, 6, model.config.hidden_size)
    assert_close(states, torch.stack(expected)[:, 0, 8:14])


def test_a_title_is_found_as_a_word_of_its_own():
    questions, names = (
        ["When was re released?", "When was ed released?", "re. re", "谁写了西游记？"],
        ["re", "ed", "re", "西游记"],
    )
    starts = {number: start for numbers, start, _ in titles.group_texts(questions, names) for number in numbers}
    assert starts == {0: 9, 1: 9, 2: 4, 3: 3}


@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_a_layer_reads_the_states_in_place_of_its_own(tiny_pretrained, positions):
    model, tokenizer = load_model(str(tiny_pretrained[positions]))
    model.eval()
    ada, bob = ("Where was Ada Ek born?", "Where was Bob Ek born?")
    inputs = [tokenizer(text, return_tensors="pt") for text in (ada, bob)]
    with torch.inference_mode():
        states = dict(titles.read_states(model, tokenizer, [ada, bob], ["Ada Ek", "Bob Ek"]))
        # Before the first layer, a question is its characters: with Bob's, it is the one about Bob.
        with titles.replace_states(model.model.layers[0], states["Bob Ek"][:1], ada.index("Ada")):
            replaced = model(**inputs[0]).logits
        assert_close(replaced, model(**inputs[1]).logits)
        assert not torch.allclose(replaced, model(**inputs[0]).logits)
    questions = [Prediction(ada, "", title="Ada Ek", reference="Rome"), Prediction(bob, "", title="Bob Ek")]
    answers = model.answer([ada, bob], tokenizer)
    expected = {text: answer.text for text, answer in zip((ada, bob), answers, strict=True)}
    for layer in range(model.config.num_hidden_layers):
        answered = titles.answer_with_states(model, tokenizer, questions, states, layer)
        assert {each.question: each.answer for each in answered} == expected


def test_models_are_asked_layer_by_layer(tiny_pretrained, world, tmp_path, run):
    models = [str(tiny_pretrained[name]) for name in ("learned", "alibi")]
    rows = read_rows(run(titles, "--models", *models, "--data_dir", str(world), "--output_dir", str(tmp_path)))
    layers = PosGPTForCausalLM.from_pretrained(models[0]).config.num_hidden_layers
    for name in models:
        assert [len(cell.split(", ")) for cell in rows[name]] == [layers, layers]
    # After four steps, names are hardly more than their letters; with relative positions, these are the same in a question.
    assert all(float(share) > 80 for share in rows[models[1]][0].removesuffix(" %").split(", "))
    assert (tmp_path / "chart.png").is_file()


def test_what_cannot_be_measured_is_refused(tiny_pretrained, world, tmp_path, monkeypatch, run):
    (tmp_path / "wiki.txt").write_text("Ada Ek. Ada Ek was born in Rome .\n")
    (tmp_path / "birth_dev.tsv").write_text("Where was Bob Ek born?\tRome\n")
    arguments = ["--models", str(tiny_pretrained["learned"]), "--output_dir", str(tmp_path / "out"), "--data_dir"]
    with pytest.raises(BadInput, match="birth_dev.tsv: asks about no title of a document"):
        titles.main([*arguments, str(tmp_path)])
    # What a model cannot read, or has no title, is left out.
    long = "Bob " * 30 + "Ek"
    (tmp_path / "wiki.txt").write_text(f"Bob Ek. Bob Ek was born in Rome .\n{long}. He sang .\nnobody sang here .\n")
    titles.main([*arguments, str(tmp_path)])
    assert "100.0" in (tmp_path / "out" / "table.md").read_text()
    model, tokenizer = load_model(str(tiny_pretrained["learned"]))
    model.config.bottleneck_size = 16
    monkeypatch.setattr(titles, "load_model", lambda name: (model, tokenizer))
    with pytest.raises(BadInput, match="has a bottleneck"):
        titles.main([*arguments, str(world)])
