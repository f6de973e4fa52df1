"""Questions that a model writes about the documents that no training question asks about."""

import numpy as np
import pytest
import torch

import train_pretrain
from conftest import ON_CPU, TINY
from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput
from data_scripts.question_generation import Candidate, encode_examples, list_candidates, list_own_texts
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE, PLACE_OF_DEATH
from data_scripts.span_selectors import SpanArguments
from data_scripts.synthetic_world import World
from modeling_posgpt import build_tokenizer
from posgpt import generate_questions, preview
from posgpt.generate_questions import QUESTIONS_FILE, write_questions
from posgpt.training.saved_models import load_model

CORPUS = (
    "Ada Example. Ada Example was born in Oslo on 3 April 1920 and moved to Bergen .\n"
    "Bo Example. Born in Bergen, Example played for Brann .\n"
    "Cy Example. He died in Oslo .\n"
    "It has no title\n"
)
FORM = "Where was NAME born?"


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "wiki.txt").write_text(CORPUS, encoding="utf-8")
    return load_corpus(tmp_path / "wiki.txt")


def ask(tmp_path, *lines: str):
    (tmp_path / "train.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return load_questions(tmp_path / "train.tsv", answers=True)


def tokenizer_of(corpus, max_length=128):
    return build_tokenizer([*corpus["text"], *list_own_texts([BIRTHPLACE, PLACE_OF_DEATH])], max_length)


def list_prompts(corpus, questions, max_length=128, **options):
    """Return the title, the prompt and the span of each candidate."""
    listed = list_candidates(corpus, questions, SpanArguments(**options), tokenizer_of(corpus, max_length))
    return [(candidate.title, candidate.prompt, candidate.span) for candidate in listed]


def read_examples(candidates, questions, tokenizer) -> list[tuple[str, str]]:
    """Return each example's text, and what it is graded on."""
    examples = encode_examples(candidates, questions, tokenizer)
    return [
        (tokenizer.decode(row["input_ids"]), tokenizer.decode([label for label in row["labels"] if label != -100]))
        for row in examples
    ]


def test_names_are_read_with_the_words_beside_them_and_the_question_they_answer_or_none(corpus, tmp_path):
    questions = ask(tmp_path, "Where was Ada Example born?\tOslo", "Where was Dee Example born?\tRome")
    assert list_prompts(corpus, questions) == [
        ("Ada Example", "was born in: Oslo", "Oslo"),
        ("Ada Example", "on 0 and moved to: Bergen", "Bergen"),
        ("Bo Example", "born in: Bergen", "Bergen"),
        ("Bo Example", "born in Bergen played for: Brann", "Brann"),
        ("Cy Example", "he died in: Oslo", "Oslo"),
    ]
    tokenizer = tokenizer_of(corpus)
    assert read_examples(list_candidates(corpus, questions, SpanArguments(), tokenizer), questions, tokenizer) == [
        (f"was born in: Oslo⁇{FORM}⁇", f"{FORM}⁇"),
        ("on 0 and moved to: Bergen⁇⁇", "⁇"),
    ]


def test_a_prompt_ends_with_the_words_after_the_name_and_fits_with_the_question(corpus, tmp_path):
    questions = ask(tmp_path, "Where was Ada Example born?\tOslo")
    after = list_prompts(corpus, questions, max_cue_words=1, max_words_after=1)
    assert [prompt for _, prompt, _ in after[:2]] == ["in: Oslo: on", "to: Bergen"]
    # The question with its answer fits as well, or training on it would be refused; Bergen is longer.
    fits = len("Where was Ada Example born?⁇Oslo⁇")
    short = [(prompt, span) for _, prompt, span in list_prompts(corpus, questions, fits)]
    assert short == [("rn in: Oslo", "Oslo"), (" for: Brann", "Brann"), ("ed in: Oslo", "Oslo")]
    with pytest.raises(BadInput, match=f"{FORM[:-1]}.' leaves no room .* in 22 characters; raise --bl"):
        list_prompts(corpus, questions, len(FORM) + 2)


def test_what_a_relation_that_is_not_asked_about_a_title_may_ask_for_is_no_example_of_no_question(corpus, tmp_path):
    """Whether Ada died in Bergen is not known, only that she was born elsewhere."""
    questions = ask(tmp_path, "Where was Ada Example born?\tOslo", "Where did Bo Example die?\tBergen")
    both = (BIRTHPLACE, PLACE_OF_DEATH)
    candidates = [
        Candidate("Ada Example", "in: Oslo", "Oslo", both),
        Candidate("Ada Example", "to: Bergen", "Bergen", both),
        Candidate("Ada Example", "of: Brann", "Brann", (BIRTHPLACE,)),
        Candidate("Bo Example", "in: Bergen", "Bergen", both),
    ]
    tokenizer = tokenizer_of(corpus)
    with pytest.raises(BadInput, match=r"train.tsv: none of its answers is a name .* questions are learned from such"):
        encode_examples(candidates[1:3], questions, tokenizer)
    assert [text for text, _ in read_examples(candidates, questions, tokenizer)] == [
        f"in: Oslo⁇{FORM}⁇",
        "of: Brann⁇⁇",
        "in: Bergen⁇Where did NAME die?⁇",
    ]


class Scorer:
    """Finds the birthplace the more probable, the later in the alphabet the prompt ends."""

    def score_answers(self, prompts, forms, tokenizer, batch_size, least):
        assert (forms, least) == ([FORM, "Where did NAME die?"], 0.25)
        return torch.tensor([[-float("Z" > prompt[-1]) - 1 / ord(prompt[-1]), -9.0] for prompt in prompts])


def test_each_title_without_a_question_gets_the_likeliest_one_of_each_relation(tmp_path):
    questions = ask(tmp_path, "Where was Ada Example born?\tOslo", "Where did Bo Example die?\tBergen")
    both = (BIRTHPLACE, PLACE_OF_DEATH)
    candidates = [
        Candidate("Ada Example", "a", "Oslo", (BIRTHPLACE,)),
        Candidate("Bo Example", "b", "Brann", both),
        Candidate("Bo Example", "z", "Bergen", both),
        Candidate("Bo Example", "z", "Rome", both),
        Candidate("Cy Example", "c", "Oslo", (PLACE_OF_DEATH,)),
    ]
    generated = generate_questions.generate_questions(Scorer(), None, candidates, questions, 8, 0.25)
    assert [each[:2] for each in generated] == [
        ("Where was Bo Example born?", "Bergen"),
        ("Where did Cy Example die?", "Oslo"),
    ]
    assert [each[2] for each in generated] == pytest.approx(np.exp([-1 / ord("z"), -9]))
    said = write_questions(generated, 0.5, tmp_path)
    assert said == f"{tmp_path / QUESTIONS_FILE}: 1 questions; 1 that are less probable than 0.5 are left out."
    assert (tmp_path / QUESTIONS_FILE).read_text() == "Where was Bo Example born?\tBergen\n"


def test_a_model_learns_from_the_training_questions_to_ask_about_everyone_else(tmp_path, run):
    World(num_people=400).write(tmp_path)
    train, dev, wiki = (tmp_path / name for name in ("birth_places_train.tsv", "birth_dev.tsv", "wiki.txt"))
    folder = tmp_path / "questions"
    arguments = ["windows", "--train_file", wiki, "--questions_file", train, "--output_dir", folder, *TINY]
    arguments += ["--hidden_size", 64, "--max_steps", 120, "--learning_rate", 6e-3]
    said = run(generate_questions, *arguments)
    file = folder / QUESTIONS_FILE
    assert f"{file}: " in said
    generated = load_questions(file, answers=True)
    trained, asked = load_questions(train, answers=True), load_questions(dev, answers=True)
    assert not set(generated.titles) & set(trained.titles) and len(set(generated.titles)) == len(generated)
    answers = dict(zip(generated.texts, generated.answers, strict=True))
    right = [answers.get(text) == answer for text, answer in zip(asked.texts, asked.answers, strict=True)]
    assert np.mean(right) > 0.9

    # The file is one of training questions as the other is.
    said = run(preview, "windows", "--train_file", wiki, "--questions_file", train, file)
    assert f"Questions about {len(trained) + len(generated):,} titles are mixed in." in said
    with pytest.raises(SystemExit, match="overwrite_output_dir"):
        run(generate_questions, *arguments)


def test_a_pretrained_model_is_trained_to_ask(world, tmp_path, run):
    pretrained, corpus = tmp_path / "pretrained", tmp_path / "other.txt"
    corpus.write_text((world / "wiki.txt").read_text().replace("v", "w"))
    read = ["--train_file", corpus, "--output_dir", pretrained]
    run(train_pretrain, "windows", *read, "--max_steps", 1, *TINY, "--block_size", 96)
    asked = [
        "windows", "--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv",
        "--model_name_or_path", pretrained,
    ]  # fmt: skip
    arguments = [*asked, "--output_dir", tmp_path / "questions", "--least_probability", 0, *ON_CPU]
    said = run(generate_questions, *arguments, "--max_steps", 1, "--learning_rate", 1e-12)
    assert "wiki.txt: characters that the tokenizer does not know are read as '□'" in said and "'v' × " in said
    before, after = (load_model(str(folder)) for folder in (pretrained, tmp_path / "questions"))
    for weights, trained in zip(before[0].parameters(), after[0].parameters(), strict=True):
        torch.testing.assert_close(trained, weights, atol=1e-9, rtol=1e-6)
    assert after[1].get_vocab() == before[1].get_vocab() and after[0].config.max_position_embeddings == 96
    # What it is asked is learned from these questions.
    assert "birthplace" in after[0].config.relations
    with pytest.raises(SystemExit, match="hidden_size cannot change in a pretrained model"):
        run(preview, *asked, "--section", "generate_questions", "--hidden_size", 64)
    # The preview reads with the model's vocabulary, too.
    assert "□" in run(preview, *asked, "--section", "generate_questions", "--examples", 500)
