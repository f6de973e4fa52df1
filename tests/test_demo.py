"""The page, driven in a real browser."""

import json
import os
import shutil
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest

pytest.importorskip("gradio", reason="needs the demo's libraries")
pytest.importorskip("selenium", reason="needs selenium")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from conftest import ROOT
from data_scripts.errors import BadInput
from data_scripts.relations import BIRTHPLACE, Relation
from hub import find_free_port
from posgpt.evaluation.evidence import mark_evidence
from posgpt.extras.demo import AS_TYPED, read_question

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)",
)


@pytest.fixture(scope="module")
def corpus(world, tmp_path_factory):
    """The small world's, with one document that would like to be run."""
    file = tmp_path_factory.mktemp("corpus") / "wiki.txt"
    file.write_text((world / "wiki.txt").read_text() + "Eve Ill. Ill <img src=x onerror=document.title='run'> .\n")
    return file


@pytest.fixture(scope="module")
def model_of_two_relations(tiny_pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "rotary"
    shutil.copytree(tiny_pretrained["rotary"], folder)
    config = json.loads((folder / "config.json").read_text())
    config["relations"] = BIRTHPLACE.to_config() | Relation("year", ("When was {title} born?",)).to_config()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def page(tiny_pretrained, model_of_two_relations, corpus):
    """The browser, with the page of two models in it."""
    port = find_free_port()
    command = [sys.executable, "-m", "posgpt.extras.demo", "--port", str(port), "--corpus_file", str(corpus)]
    command += ["--model_name_or_path", str(model_of_two_relations), "--abstain_below", "0"]
    command += ["--compare_with", str(tiny_pretrained["learned"])]
    server = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False"})
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for option in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ):
        options.add_argument(option)
    options.add_argument("--disable-background-networking")
    options.add_argument("--disable-component-update")
    options.add_argument("--window-size=1300,1500")
    try:
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            until_it_answers(f"http://127.0.0.1:{port}/", server)
            browser.get(f"http://127.0.0.1:{port}/")
            yield browser
        finally:
            browser.quit()
    finally:
        server.terminate()
        server.wait(20)


def until_it_answers(url, server):
    for _ in range(600):
        assert server.poll() is None, "the page's program ended"
        try:
            return urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the page never came")


def ask(page, text, wanted):
    """Type, press the button, and wait for what is wanted in the answers; return their element."""
    field = WebDriverWait(page, 60).until(lambda page: page.find_element(By.CSS_SELECTOR, "textarea"))
    # Long texts and signs outside the BMP cannot be typed key by key.
    page.execute_script(
        "const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set;"
        "set.call(arguments[0], arguments[1]); arguments[0].dispatchEvent(new Event('input', {bubbles: true}));",
        field,
        text,
    )
    page.find_element(By.CSS_SELECTOR, "button.primary").click()
    WebDriverWait(page, 60).until(lambda page: wanted in page.find_element(By.ID, "answers").text)
    return page.find_element(By.ID, "answers")


def test_a_known_name_is_answered_by_both_models_with_its_evidence(page, world):
    document = (world / "wiki.txt").read_text().splitlines()[0]
    name = document.split(". ")[0]
    answers = ask(page, name, "Line 1 of the corpus")
    assert answers.find_element(By.TAG_NAME, "h3").text == name
    assert len(answers.find_elements(By.CSS_SELECTOR, ".answer")) == 2
    assert "(rotary)" in answers.text and "(learned)" in answers.text
    assert answers.find_element(By.TAG_NAME, "mark").text == name
    assert answers.text.count(" %") == 10
    answers.find_element(By.TAG_NAME, "summary").click()
    looked_at = answers.find_element(By.CSS_SELECTOR, ".attention").text
    assert looked_at.endswith(f"Where was {name} born?⁇")


def test_a_whole_question_may_ask_for_another_relation_than_the_chosen_one(page, world):
    name = (world / "wiki.txt").read_text().split(". ")[0]
    answers = ask(page, f"When was {name} born?\n{name}", f"When was {name} born?")
    asked = [question.text for question in answers.find_elements(By.CSS_SELECTOR, ".question")]
    assert asked == [f"When was {name} born?", f"Where was {name} born?"]
    assert "Asked about a name" in page.find_element(By.TAG_NAME, "body").text


def test_the_questions_to_choose_from_are_the_models_own(page, tiny_pretrained, model_of_two_relations):
    def list_options(page):
        form = page.find_element(By.CSS_SELECTOR, "input[aria-label='Asked about a name']")
        page.execute_script("arguments[0].blur(); arguments[0].focus()", form)
        return [option.text.strip("✓ \n") for option in page.find_elements(By.CSS_SELECTOR, "[role=option]")]

    def choose(model, wanted):
        place = (By.CSS_SELECTOR, "input[aria-label='Model']")
        field = WebDriverWait(page, 60).until(lambda page: page.find_element(*place))
        page.execute_script("arguments[0].focus(); arguments[0].select()", field)
        field.send_keys(str(model), Keys.ENTER)
        WebDriverWait(page, 60).until(lambda page: list_options(page) == wanted)

    born, year = BIRTHPLACE.form, "When was NAME born?"
    choose(tiny_pretrained["learned"], [born, AS_TYPED])
    choose(model_of_two_relations, [born, year, AS_TYPED])


def test_other_text_is_asked_as_it_is_typed(page):
    answers = ask(page, "Where was Ada\nWhen was Ada", "When was Ada")
    assert [title.text for title in answers.find_elements(By.TAG_NAME, "h3")] == ["Where was Ada", "When was Ada"]
    assert answers.text.count("Asked as typed") == 2 and "no document of this name" not in answers.text


def test_an_unseen_name_is_said_to_be_unseen_and_several_are_asked_at_once(page):
    answers = ask(page, "Nobody Known\n\nWhere was Nobody Else born?", "Nobody Else")
    assert [title.text for title in answers.find_elements(By.TAG_NAME, "h3")] == ["Nobody Known", "Nobody Else"]
    assert answers.text.count("no document of this name") == 2


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "Give a name"),
        (" \n ", "Give a name"),
        ("A" * 300, "has 300 characters"),
        ("A" * 10_001, "at most 10,000"),
        ("\n".join(["Bo Ek"] * 51), "at most 50 at a time"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_line(page, text, said):
    answers = ask(page, text, said)
    assert len(answers.find_elements(By.CSS_SELECTOR, "[role=alert]")) == 1


def test_html_and_emoji_are_text_like_any_other(page):
    name = "<img src=x onerror=document.title='run'> 😀"
    answers = ask(page, name, "sees as □")
    assert answers.find_element(By.TAG_NAME, "h3").text == name
    ask(page, "Eve Ill", "onerror")
    time.sleep(0.5)
    assert page.title != "run" and not page.find_elements(By.CSS_SELECTOR, "#answers img")


def test_a_line_is_a_question_of_any_relation_or_a_name_that_the_chosen_one_is_asked_about():
    years = Relation("year", ("When was {title} born?",))
    for line, form, expected in (
        ("Ada", "When was NAME born?", ("Ada", "When was Ada born?")),
        ("Ada", "Where was NAME born?", ("Ada", "Where was Ada born?")),
        ("When was Ada born?", "Where was NAME born?", ("Ada", "When was Ada born?")),
        ("When was Ada born", "Where was NAME born?", (None, "When was Ada born")),
        ("Where Art Thou?", "Where was NAME born?", ("Where Art Thou?", "Where was Where Art Thou? born?")),
        ("Ada lived in", AS_TYPED, (None, "Ada lived in")),
    ):
        assert read_question(line, [BIRTHPLACE, years], form) == expected
    with pytest.raises(
        BadInput, match="not asked “When was NAME born.”; choose another question, .* Where was NAME born"
    ):
        read_question("Ada", [BIRTHPLACE], years.form)


def test_evidence_marks_the_name_and_the_answer_as_whole_words():
    assert ("Yorkshire", "said") in mark_evidence("York. Born in Yorkshire .", "York", ["Yorkshire"])
    parts = mark_evidence(
        "A. (B) lived in New York, not York or Yorkshire. A. (B)", "A. (B)", ["York", "New York", ""]
    )
    assert [part for part in parts if part[1]] == [
        ("A. (B)", "name"), ("New York", "said"), ("York", "said"), ("A. (B)", "name"),
    ]  # fmt: skip
    assert "".join(part for part, _ in parts) == "A. (B) lived in New York, not York or Yorkshire. A. (B)"


def test_without_a_checkpoint_it_says_how_to_make_one(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "posgpt.extras.demo"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 1 and "posgpt quickstart" in result.stderr and result.stderr.count("\n") == 1
