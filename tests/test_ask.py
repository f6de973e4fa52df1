import io
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from data_scripts.relations import BIRTH_YEAR, BIRTHPLACE, PLACE_OF_DEATH, RELATIONS, Relation, read_relations
from modeling_posgpt import Answer, PosGPTForCausalLM
from posgpt import ask, cli
from posgpt.ask import Answers, Interview
from posgpt.evaluation.evidence import find_sentences
from posgpt.evaluation.predictions import Prediction


def test_questions_are_answered_as_the_model_answers_them_with_notes_on_what_is_new_to_it(run, tiny_pretrained):
    folder = tiny_pretrained["rotary"]
    questions = ["Where was Ada Berg born?", "Who is 中?"]
    unknown, new, *lines = run(cli, "ask", "--model_name_or_path", folder, "--questions", *questions).splitlines()
    assert "'中' × 1" in unknown and "'Who is 中?': do you mean 'Where was NAME born?' (birthplace)?" in new
    model, tokenizer = PosGPTForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for line, question, (answer, *_) in zip(
        lines, questions, model.list_answers(questions, tokenizer, 4), strict=True
    ):
        assert line.startswith(
            " ".join(f"{question} {answer.text or '(no answer)'} {answer.probability:.1%} (".split())
        )
        assert line.count("%") == 4


def test_the_corpus_shows_which_answers_are_made_up(run, tiny_pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(
        PosGPTForCausalLM, "list_answers", lambda self, questions, *_: [[Answer("Rome", 0.5)]] * len(questions)
    )
    corpus = tmp_path / "wiki.txt"
    corpus.write_text("Ada Berg. Born in Rome .\nBo Ek. Born in Oslo .\nAda Berg. Sang .\nAda Berg. Died in Rome .\n")
    questions = [*(f"Where was {name} born?" for name in ("Ada Berg", "Bo Ek", "Cy Dahl")), "Who?", "Is ada berg ill?"]
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--questions", *questions, "--corpus_file"]
    printed = run(cli, "ask", *arguments, corpus)
    assert "'ada berg' is 'Ada Berg' in the corpus" in printed and "Is Ada Berg ill? Rome 50.0% (" in printed
    (tmp_path / "short.txt").write_text("Ed. Worked for China .\n")
    within = run(
        cli, "ask", *arguments[:2], "--questions", "Who employed ed?", "--corpus_file", tmp_path / "short.txt"
    )
    assert "Who employed Ed? Rome" in within
    here, unknown = ["line 1: Born in Rome .", "(and 1 more)"], "no title of the corpus in the question"
    evidence = [line.strip() for line in printed.splitlines() if line.startswith("  ")]
    assert evidence == [*here, "not in its document", unknown, unknown, *here]
    with pytest.raises(SystemExit, match="none.txt: no such file"):
        run(cli, "ask", *arguments, tmp_path / "none.txt")


def test_a_title_is_found_with_more_spaces_than_it_has(run, tiny_pretrained, tmp_path):
    (tmp_path / "wiki.txt").write_text("Ada Berg. Born in Rome .\n")
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--questions", " Where was Ada  Berg born?"]
    printed = run(cli, "ask", *arguments, "--corpus_file", tmp_path / "wiki.txt")
    assert "Where was Ada Berg born?" in printed and "no title of the corpus" not in printed


@pytest.mark.parametrize(
    "typed, question",
    [
        ("where was ada berg born", "Where was ada berg born?"),
        ("WHERE WAS Bo Ek BORN??", "Where was Bo Ek born?"),
        ("who employed Sammy Davis Jr.", "Who employed Sammy Davis Jr.?"),
        ("who employed the owner of Ek & Co.?", "Who employed the owner of Ek & Co.?"),
        ("ada berg's birthplace", "ada berg's birthplace:"),
        (" where was Bo Ek born? ", "Where was Bo Ek born?"),
        ("where did ada berg die born", None),
        ("where was born?", None),
    ],
)
def test_a_question_in_another_case_or_without_its_mark_is_asked_as_the_model_knows_it(
    run, tiny_pretrained, monkeypatch, typed, question
):
    known = [*BIRTHPLACE.wordings, "{title}'s birthplace:"]
    relations = {"birthplace": {"wordings": known}, **RELATIONS["employer"].to_config()}
    monkeypatch.setattr(ask, "read_relations", lambda _: [*read_relations(relations)])
    first, *_, last = run(
        cli, "ask", "--model_name_or_path", tiny_pretrained["rotary"], "--questions", typed
    ).splitlines()
    if question:
        assert first == f"{typed.strip()!r} is asked as {question!r}." and last.startswith(f"{question} ")
    else:
        assert "is asked as" not in first


def test_a_question_that_is_given_without_its_option_names_the_option(run, tiny_pretrained):
    with pytest.raises(SystemExit, match="did you mean --questions 'Where was Ada born'?"):
        run(cli, "ask", "Where was Ada born", "--model_name_or_path", tiny_pretrained["rotary"])


def test_an_empty_answer_is_shown_as_none():
    answers = Answers([Prediction("Where was Bo born?", "", probability=0.5, alternatives={"Rome": 0.25})], [])
    assert str(answers) == "Where was Bo born? (no answer) 50.0% (Rome 25.0%)"


@pytest.mark.parametrize(
    "questions, match",
    [
        ([""], "'' is not a question"),
        (["x" * 127 + "?"], "128 characters .*; shorten it"),
        (["Where was Bo born?⁇"], "without the ⁇"),
        ([__file__], "test_ask.py: is a file; posgpt evaluate --test_file asks its questions"),
        ("Where was Bo born?".split(), "'Where' is a word of a question; put each question in quotation marks"),
        ("where was Bo born".split(), "'where' is a word of a question; put each question in quotation marks"),
    ],
)
def test_what_cannot_be_asked_is_refused(run, tiny_pretrained, questions, match):
    with pytest.raises(SystemExit, match=f"error: .*{match}"):
        run(cli, "ask", "--model_name_or_path", tiny_pretrained["rotary"], "--questions", *questions)


@pytest.mark.parametrize(
    "text, answer, sentence",
    [
        ("He was J. B. Ek of Rome. He sang. Born in Oslo.", "Oslo", "Born in Oslo."),
        ("He was J. B. Ek of Rome. He sang. Born in Oslo.", "Rome", "He was J. B. Ek of Rome."),
        ("By Cameron Crowe. The end", "Cameron Crowe. The", "By Cameron Crowe. The end"),
        ("生于底特律。死于罗马。", "罗马", "死于罗马。"),
        ("जन्म दिल्ली में हुआ। वे लेखक थे।", "दिल्ली", "जन्म दिल्ली में हुआ।"),
        ("He worked at Macy's. He died in Rome.", "Rome", "He died in Rome."),
        ("वह राजा है। जन्म दिल्ली में हुआ। वे लेखक थे।", "दिल्ली", "जन्म दिल्ली में हुआ।"),
        ("He was mayor 1995–6. He died in Rome.", "Rome", "He died in Rome."),
        ("서울에 있는 산. 높이는 832 m이다.", "832", "높이는 832 m이다."),
        ("மு. கருணாநிதி சென்னையில் வாழ்ந்தார். அவர்", "சென்னையில்", "மு. கருணாநிதி சென்னையில் வாழ்ந்தார்."),
        ("ደራሲ በአዲስ አበባ ተወለደ። በሮም ሞተ።", "በሮም", "በሮም ሞተ።"),
    ],
)
def test_the_sentence_of_an_answer(text, answer, sentence):
    assert find_sentences(text, answer) == [sentence]


def test_all_sentences_of_an_answer():
    text = "Ada Berg left Rome for good. He sang. In old age, Rome called Ada Berg back to Rome. Romeo wrote."
    assert find_sentences(text, "Rome") == [
        "Ada Berg left Rome for good.",
        "In old age, Rome called Ada Berg back to Rome.",
    ]
    assert find_sentences(text, "Oslo") == []


@pytest.fixture
def converse(run, tiny_pretrained, tmp_path, monkeypatch):
    """Return a function that pipes lines into a prompt and returns what it prints."""
    folder, corpus = tmp_path / "model", tmp_path / "wiki.txt"
    corpus.write_text("Ada Berg. Born in Rome .\nADA BERG. Sang .\nBo Ek. Sang .\nBo Ek. Born in Rome .\n")

    def list_answers(model, texts, tokenizer, number, *options) -> list[list[Answer]]:
        best = [Answer("Rome", 0.5), Answer("Oslo", 0.2)]
        return [best[:number] for _ in model._compute_answer_budgets(texts)]

    monkeypatch.setattr(PosGPTForCausalLM, "list_answers", list_answers)
    model = PosGPTForCausalLM.from_pretrained(tiny_pretrained["rotary"])
    model.config.relations = BIRTHPLACE.to_config() | BIRTH_YEAR.to_config() | PLACE_OF_DEATH.to_config()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_pretrained["rotary"]).save_pretrained(folder)

    def talk(*lines: str, corpus_file=corpus) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        options = ["--corpus_file", corpus_file] if corpus_file else []
        return run(cli, "ask", "--model_name_or_path", folder, *options).splitlines()

    return talk


def test_a_prompt_answers_questions_and_titles_until_it_is_left(converse):
    assert converse() == converse("", ":quit", "Where was Bo Ek born?") == []
    reply, line = "Where was Bo Ek born? Rome 50.0% (Oslo 20.0%)", "  line 4: Born in Rome ."
    assert converse("Where was Bo Ek born?", ":why") == [reply, line] * 2
    note, *replies = converse(":cite off", "bo ek", ":cite on", "birthplace")
    others = [reply.replace("Where was", "When was"), reply.replace("was Bo Ek born", "did Bo Ek die")]
    assert "'Bo Ek'" in note and replies == [reply, *others, reply, line]
    # A relation's name asks about the last title, also after a question without one.
    assert converse("bo ek", "Who made it?", "birthplace")[-2:] == [reply, line]
    # Words beside a title that fit its wording are none of it.
    typed, note, *rest = converse("Where was the great Bo Ek born?")[:4]
    assert note.startswith("Where was the great Bo Ek born?") and typed.endswith(
        "do you mean 'Where was Bo Ek born?' (birthplace)?"
    )
    assert rest == [line, reply]
    assert converse("Where was Bo Ek or Ada Berg born?")[1] == "  no title of the corpus in the question"
    # Two titles differ in case alone.
    assert converse("When was ada berg born?")[1] == "  no title of the corpus in the question"
    for title in ("Cy Dahl", "Cy Dahl Jr."):
        assert converse(title, corpus_file=None)[-1] == others[1].replace("Bo Ek", title)


def test_words_beside_a_relations_name_do_not_say_that_it_is_meant():
    author, year = (
        Relation("author", ("Who is the author of {title}?",)),
        Relation("year", ("When did {title} appear?",)),
    )
    asking = SimpleNamespace(relations=[author, year])
    for question, meant in (
        ("What is the year of Oslo?", [year]), ("When is the book of Oslo due?", [year]), ("Is Oslo its author?", [author]),
        ("What is the size of Oslo?", []),
    ):  # fmt: skip
        assert Interview.find_meant(asking, question, "Oslo") == meant


def test_a_question_that_two_relations_could_mean_is_asked_back_and_errors_do_not_end_the_prompt(converse):
    typed = ["In which town was bo ek born?", "birthplace", ":cite", "x" * 200, ":help"]
    note, doubt, _, _, reply, _, *errors = converse(*typed)
    assert "do you mean 'Where was Bo Ek born?' (birthplace) or 'When was Bo Ek born?' (birth year)?" in doubt
    meant, *answers = converse(":cite off", "Where was Bo Ek at death?")
    assert "do you mean 'Where did Bo Ek die?' (place of death)?" in meant
    assert [each.partition("?")[0] for each in answers] == ["Where was Bo Ek at death", "Where did Bo Ek die"]
    assert reply.startswith("Where was Bo Ek born? Rome") and sum(each.startswith("error: ") for each in errors) == 2
