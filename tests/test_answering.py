import math
from dataclasses import astuple, replace

import pytest
import torch

from model_helpers import EACH_HOOK
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from posgpt.evaluation.predictions import Prediction, answer_questions, format_predictions, read_predictions

PLACES = ["Rome", "New York City", "Oslo", "Bo", "Aix-en-Provence"]
QUESTIONS = ["Where was Bo Li born?", "Where was Maria Theresia von Paradis born?", "Where was Al born?"]


def build(**settings):
    torch.manual_seed(0)
    tokenizer = build_tokenizer(PLACES + QUESTIONS, 64)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    config = PosGPTConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes | settings)
    return PosGPTForCausalLM(config).eval(), tokenizer


@pytest.fixture(params=EACH_HOOK)
def asked(request):
    return build(position_embedding_type=request.param)


def log_probability(model, tokenizer, question, text):
    """Of the text after the question, in one reading of both."""
    ids = tokenizer(f"{question}⁇{text}", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        log_probs = model(ids).logits[0, :-1].log_softmax(-1)
    written = ids[0, len(question) + 1 :]
    return float(log_probs[-len(written) :].gather(1, written[:, None]).sum())


@pytest.mark.parametrize("settings", [
    *({"position_embedding_type": name} for name in EACH_HOOK),
    # A model that reads through latents has no cache.
    *({"num_hidden_layers": 3, "bottleneck_size": 16, "bottleneck_type": name} for name in ("perceiver", "strided")),
])  # fmt: skip
def test_an_answer_is_scored_as_if_it_were_read_after_the_question(settings):
    model, tokenizer = build(**settings)
    pairs = [(question, place) for question in QUESTIONS for place in PLACES]
    expected = [log_probability(model, tokenizer, question, place + "⁇") for question, place in pairs]
    for batch_size in (5, 128):
        own = model.compute_log_probs(*zip(*pairs, strict=True), tokenizer, batch_size=batch_size)
        torch.testing.assert_close(own, torch.tensor(expected), atol=1e-4, rtol=1e-4)
    assert model.compute_log_probs([], [], tokenizer).shape == (0,)
    for wrong, match in (({"batch_size": -1}, "batch_size is -1"), ({}, "are not a list of texts without the ⁇")):
        with pytest.raises(ValueError, match=match):
            model.compute_log_probs(QUESTIONS[:1], ["Rome" if wrong else "Rome⁇"], tokenizer, **wrong)
    # Without marks: what comes after `⁇` is read as any text.
    texts = [question + "⁇" for question, _ in pairs]
    places = model.compute_continuation_log_probs(texts, [place for _, place in pairs], tokenizer, batch_size=5)
    expected = [log_probability(model, tokenizer, question, place) for question, place in pairs]
    torch.testing.assert_close(places, torch.tensor(expected), atol=1e-4, rtol=1e-4)
    for text, continuation in (("", "Rome"), ("W" * 80, "R" * 80)):
        with pytest.raises(ValueError, match="a text is empty, or has more than"):
            model.compute_continuation_log_probs([text], [continuation], tokenizer)


def test_the_likeliest_answers_have_the_probabilities_of_what_was_written(asked):
    model, tokenizer = asked
    with pytest.raises(ValueError, match="number is 0; choose at least 1"):
        model.list_answers(QUESTIONS, tokenizer, 0)
    for question, found in zip(QUESTIONS, model.list_answers(QUESTIONS, tokenizer, 3, 12, 3), strict=True):
        probabilities = [each.probability for each in found]
        assert len(found) == 3 and probabilities == sorted(probabilities, reverse=True)
        for text, probability in map(astuple, found):
            end = "⁇" if len(text) < 3 else ""
            expected = math.exp(log_probability(model, tokenizer, question, text + end))
            assert probability == pytest.approx(expected, rel=1e-3)


def test_the_surprisal_of_references_is_that_of_all_together(asked, tmp_path):
    model, tokenizer = asked
    questions = [Prediction(QUESTIONS[0], "", reference=PLACES[:2]), Prediction(QUESTIONS[1], "", reference=PLACES[0])]
    answered = answer_questions([*questions, Prediction(QUESTIONS[1], "")], model, tokenizer)
    for each, of in zip(answered, (PLACES[:2], PLACES[:1]), strict=False):
        known = sum(math.exp(log_probability(model, tokenizer, each.question, place + "⁇")) for place in of)
        assert each.surprisal == pytest.approx(-math.log2(known), rel=1e-3)
    assert answered[2].surprisal is None
    file = tmp_path / "predictions.jsonl"
    file.write_text(format_predictions([*answered, replace(answered[0], surprisal=0.0)]))
    assert [each.surprisal for each in read_predictions(file)] == [*(each.surprisal for each in answered), 0.0]
    file.write_text('{"question": "?", "answer": "Rome", "surprisal": Infinity}')
    with pytest.raises(ValueError, match="line 1: no prediction: surprisal is inf"):
        read_predictions(file)


def test_the_alternatives_of_a_question_do_not_depend_on_what_else_is_asked(asked):
    model, tokenizer = asked
    questions = [
        Prediction(text, "", reference=PLACES[:number]) for text, number in zip(QUESTIONS, (2, 3, 1), strict=False)
    ]
    together = answer_questions(questions, model, tokenizer)
    assert [len(each.alternatives or ()) for each in together] == [2, 3, 0]
    assert together[0].alternatives == pytest.approx(answer_questions(questions[:1], model, tokenizer)[0].alternatives)
    # Calibration may ask it, too.
    twice = answer_questions(
        [*questions[:1], replace(questions[0], reference=PLACES[0], group="calibration")], model, tokenizer
    )
    assert [len(each.alternatives or ()) for each in twice] == [2, 0]


def test_a_candidate_that_does_not_fit_the_maximum_length_is_impossible_and_changes_no_other(asked):
    model, tokenizer = asked
    question, candidates = "Where was " + "Al " * 11 + "born?", ["Rome", "Aix-en-Provence", "New York City"]
    scores = model.compute_log_probs([question] * 3, candidates, tokenizer)
    assert len(question) + 1 + len("New York City⁇") <= 64 < len(question) + 1 + len("Aix-en-Provence⁇")
    assert scores[1] == -math.inf
    for number in (0, 2):
        expected = log_probability(model, tokenizer, question, candidates[number] + "⁇")
        assert float(scores[number]) == pytest.approx(expected, abs=1e-4)
    # One that fills it is possible.
    filling = "Rome".ljust(64 - len(question) - 2, "e")
    (score,) = model.compute_log_probs([question], [filling], tokenizer)
    assert float(score) == pytest.approx(log_probability(model, tokenizer, question, filling + "⁇"), abs=1e-3)


def test_the_probability_of_an_answer_is_that_of_all_its_characters(asked):
    """And of the `⁇` that ends it."""
    model, tokenizer = asked
    bonus, lengths = torch.zeros(()), set()

    def prefer_to_end(module, inputs, output):
        output.logits[..., tokenizer.mask_token_id] += bonus

    model.register_forward_hook(prefer_to_end)
    for value in range(0, 12, 2):
        bonus.fill_(value)
        for question, answer in zip(QUESTIONS, model.answer(QUESTIONS, tokenizer, max_new_tokens=5), strict=True):
            text = answer.text + ("⁇" if len(answer.text) < 5 else "")
            assert answer.probability == pytest.approx(
                math.exp(log_probability(model, tokenizer, question, text)), rel=1e-3
            )
            lengths.add(len(answer.text))
    assert {5} < lengths, "some end, and some do not"


def test_an_answer_that_does_not_end_is_cut_off_after_32_characters(asked):
    model, tokenizer = asked

    def prefer_one_character(module, inputs, output):
        output.logits[..., tokenizer.convert_tokens_to_ids("o")] = 1e4

    model.register_forward_hook(prefer_one_character)
    (answer,) = model.answer(QUESTIONS[2:], tokenizer)
    assert answer.text == "o" * 32 and answer.probability == pytest.approx(1)
    # Unless the configuration says otherwise, as where longer answers were trained on.
    model.config.max_answer_length = 37
    assert model.answer(QUESTIONS[2:], tokenizer)[0].text == "o" * 37


def test_a_model_that_was_training_answers_without_dropout():
    model, tokenizer = build(embd_pdrop=0.5)
    answers = [PLACES[0]] * len(QUESTIONS)
    expected = model.answer(QUESTIONS, tokenizer), model.compute_log_probs(QUESTIONS, answers, tokenizer)
    model.train()
    assert model.answer(QUESTIONS, tokenizer) == expected[0]
    assert torch.equal(model.compute_log_probs(QUESTIONS, answers, tokenizer), expected[1])
    assert model.training and model.model.layers[0].training, "training goes on with dropout"
    # But not in what was frozen before.
    model.model.layers[0].eval()
    model.answer(QUESTIONS, tokenizer)
    assert model.training and not model.model.layers[0].training


def test_a_long_question_does_not_cut_its_neighbours_answers(asked):
    model, tokenizer = asked
    long = "Where was " + "Al " * 13 + "born?"
    alone = [model.answer([question], tokenizer, max_new_tokens=12)[0].text for question in (QUESTIONS[0], long)]
    together = model.answer([QUESTIONS[0], long], tokenizer, max_new_tokens=12)
    assert [answer.text for answer in together] == alone
    for ask in (model.answer, lambda questions, _: model.compute_log_probs(questions, PLACES[:1], tokenizer)):
        with pytest.raises(ValueError, match="questions is a text; give a list"):
            ask(QUESTIONS[0], tokenizer)
        for no_question in ("", QUESTIONS[0] + "⁇"):
            with pytest.raises(ValueError, match="is not a question; give text, without the ⁇"):
                ask([no_question], tokenizer)
        with pytest.raises(
            ValueError, match="has 65 characters and the model's max_position_embeddings is 64: no room"
        ):
            ask(["Where was " + "A" * 49 + " born?"], tokenizer)


def test_titles_are_asked_about_in_the_first_wording_of_a_relation(asked):
    model, tokenizer = asked
    model.config.relations = {
        "birthplace": {"wordings": ["Where was {title} born?", "{title} was born in"]},
        "other": {"wordings": ["Where was {title} {born}?"]},
    }
    expected = model.answer([QUESTIONS[0], QUESTIONS[2]], tokenizer, max_new_tokens=5)
    expected = [(answer.text, answer.probability) for answer in expected]
    assert model.ask(["Bo Li", "Al"], tokenizer, max_new_tokens=5) == expected
    assert model.ask(["Bo Li", "Al"], tokenizer, "birthplace", batch_size=2, max_new_tokens=5) == expected
    (expected,) = model.answer(["Where was {0} {title} {born}?"], tokenizer, max_new_tokens=5)
    assert model.ask(["{0} {title}"], tokenizer, relation="other", max_new_tokens=5) == [
        (expected.text, expected.probability)
    ]


def test_what_is_no_title_and_no_relation_of_the_model_is_refused(asked):
    model, tokenizer = asked
    model.config.relations = {
        "birthplace": {"wordings": ["Where was {title} born?"]},
        "spouse": {"wordings": ["{title}?"]},
    }
    for titles, relation, match in (
        ("Ada Example", None, r"give a list: \['Ada Example'\]"),
        (["Where was Ada Example born?"], None, "is a whole question; give what it asks about, or call `answer`"),
        (["Al"], "age", "relation is 'age'; choose one of birthplace, spouse"),
    ):
        with pytest.raises(ValueError, match=match):
            model.ask(titles, tokenizer, relation)
    for model.config.relations in (None, {}):
        with pytest.raises(ValueError, match="no relations to ask for: set model.config.relations"):
            model.ask(["Al"], tokenizer)
