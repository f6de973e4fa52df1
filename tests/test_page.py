"""The page without a server: what is written, and what a browser makes of it."""

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import ROOT
from data_scripts.errors import BadInput
from data_scripts.relations import BIRTH_YEAR, BIRTHPLACE, Relation
from model_helpers import tiny_model, tokens
from modeling_posgpt import MASK_TOKEN, POSITION_EMBEDDINGS, build_tokenizer
from posgpt.extras.page import write
from posgpt.extras.page.write import PageArguments, bundle_runtime, render_page
from posgpt.training.checkpoints import seal_checkpoint

DOCUMENTS = ["Ada Byron. Ada Byron was born in Bow .", "Eve Ill. Ill <img src=x onerror=document.title='run'> ."]
# The page asks for the first relation unless told otherwise.
QUESTION = BIRTHPLACE.ask("Ada Byron")
EXPORTED = [pytest.param(name, marks=() if name == "rotary" else pytest.mark.slow) for name in POSITION_EMBEDDINGS]


@pytest.fixture(scope="module")
def export():
    return pytest.importorskip("posgpt.extras.page.export", reason="needs pip install '.[page]'", exc_type=ImportError)


def save_model(folder, positions):
    """Save an untrained model that is sure of what it writes, and can be asked two things."""
    questions = [relation.ask("Ada Byron") for relation in (BIRTHPLACE, BIRTH_YEAR)]
    tokenizer = build_tokenizer([*DOCUMENTS, *questions], 64)
    model = tiny_model(positions, "eager", vocab_size=len(tokenizer), max_position_embeddings=64)
    model.config.relations = BIRTHPLACE.to_config() | BIRTH_YEAR.to_config()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folders of two models."""
    folder = tmp_path_factory.mktemp("models")
    return [save_model(folder / positions, positions) for positions in ("rotary", "learned")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "wiki.txt"
    file.write_text("\n".join(DOCUMENTS) + "\n")
    return file


@pytest.mark.parametrize("positions", EXPORTED)
def test_a_row_holds_several_answers_to_one_question(export, positions):
    model = tiny_model(positions, "eager")
    exported = export.export_model(model)
    session = export.InferenceSession(exported.SerializeToString())
    question, first, second = (tokens(1, length, seed=length) for length in (9, 3, 2))
    texts = [torch.cat([question, beginning], dim=1) for beginning in (first, second)]
    # Both beginnings stand behind the question; the second one does not see the first.
    row = export.make_row(torch.cat([question, first, second], dim=1)[0].tolist())
    row["position_ids"][0, 12:] = [9, 10]
    row["attention_mask"][:, :, 12:, 9:12] = False
    logits, attentions = session.run(None, row)
    with torch.no_grad():
        outputs = [model(text, output_attentions=True) for text in texts]
    torch.testing.assert_close(torch.from_numpy(logits[:, :12]), outputs[0].logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.from_numpy(logits[:, 12:]), outputs[1].logits[:, 9:], atol=1e-4, rtol=1e-4)
    expected = torch.cat(outputs[0].attentions)
    torch.testing.assert_close(torch.from_numpy(attentions[:, :, :12, :12]), expected, atol=1e-5, rtol=1e-4)
    if positions == "rotary":
        check_quantized(export, exported, model)


def check_quantized(export, exported, model):
    """The linear layers' weights are 8 bits wide, and what is computed stays nearly the same."""
    quantized = export.quantize(exported, model.config.hidden_size)
    linear = sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    assert sum(node.op_type == "MatMulInteger" for node in quantized.graph.node) == linear
    ids = tokens(1, 12)
    session = export.InferenceSession(quantized.SerializeToString())
    (logits,) = session.run(["logits"], export.make_row(ids[0].tolist()))
    with torch.no_grad():
        own = model(ids).logits
    assert 0 < (torch.from_numpy(logits) - own).abs().mean() < 0.1 * own.std()


class Elements(HTMLParser):
    """The elements of a page as (tag, attributes, text)."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = [["", {}, ""]]
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        self.found.append(["", {}, ""])

    def handle_data(self, data):
        self.found[-1][2] += data


def test_the_page_holds_everything_and_its_policy_lets_nothing_else_in(models, monkeypatch):
    page_models = [write.load_page_model(folder) for folder in models]
    for page_model in page_models:
        page_model.name = "</script><script>alert(1)</script>"
        page_model.versions["the end"] = page_model.model.config.position_embedding_type.encode()
    page = render_page(
        page_models,
        ("var ort = {};", b"\0asm"),
        [(None, text) for text in DOCUMENTS],
        ["Ada Byron"],
        PageArguments(models),
    )
    elements = Elements(page).found
    scripts = [(attributes, text) for tag, attributes, text in elements if tag == "script"]
    held = {attributes["id"]: text for attributes, text in scripts if "id" in attributes}
    settings = json.loads(held.pop("settings"))
    assert [model["name"] for model in settings["models"]] == ["</script><script>alert(1)</script>"] * 2
    unpacked = {name: gzip.decompress(base64.b64decode(text)) for name, text in held.items()}
    assert json.loads(unpacked.pop("corpus")) == [[None, text] for text in DOCUMENTS]
    assert unpacked == {"runtime": b"\0asm", "model-0-0": b"rotary", "model-1-0": b"learned"}
    # Whatever runs or styles is named by its hash; nothing is fetched.
    policy = next(attributes["content"] for tag, attributes, _ in elements if attributes.get("http-equiv"))
    sources = [text for attributes, text in scripts if "id" not in attributes]
    sources += [text for tag, _, text in elements if tag == "style"]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in sources}
    assert len(sources) == 4 and set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert "default-src 'none'" in policy and "connect-src" not in policy
    assert not any({"src", "srcset", "action"} & attributes.keys() for _, attributes, _ in elements)


def test_what_cannot_become_a_page_is_said_in_a_line(models, tmp_path, run, monkeypatch):
    new, there = tmp_path / "new", tmp_path / "there"
    there.mkdir()
    untokenized = tmp_path / "untokenized"
    shutil.copytree(models[0], untokenized)
    (untokenized / "tokenizer.json").unlink()
    # What is wrong is said before these are used.
    monkeypatch.setattr(write, "check_installed", lambda *libraries: None)
    for arguments, said in (
        (["--output_dir", there, "--model_name_or_path", models[0]], "already there"),
        (["--output_dir", new, "--model_name_or_path", tmp_path / "none"], "none: no such folder in "),
        (["--output_dir", new, "--model_name_or_path", untokenized], "no PosGPT"),
        (["--output_dir", new, "--model_name_or_path", *models, models[0] + "/."], "two at most"),
        (["--output_dir", new, "--model_name_or_path", *models, "--checkpoints_dir", there], "two at most"),
        (["--output_dir", new, "--model_name_or_path", models[0], "--checkpoints_dir", there], "no checkpoints"),
        (["--output_dir", new, "--model_name_or_path", models[0], "--corpus_file", new], "no such file"),
    ):
        with pytest.raises(SystemExit) as stopped:
            run(write, *arguments)
        assert said in str(stopped.value) and "\n" not in str(stopped.value)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BadInput, match="Node.js"):
        bundle_runtime()
    assert not new.exists() and not list(there.iterdir())


@pytest.mark.parametrize(
    "folders, shown",
    [
        (["runs/a"], ["a"]),
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a/pretrain", "runs/b/pretrain"], ["a/pretrain", "b/pretrain"]),
        (["runs/a", "./runs/a"], ["runs/a", "./runs/a"]),
    ],
)
def test_models_are_called_what_tells_them_apart(folders, shown):
    assert write.shorten_names(folders) == shown


def test_the_titles_of_a_table_are_proposed_as_they_are(tmp_path, run, monkeypatch):
    titles = ["Dr. No", "Ada Byron", "", "Dr. No"]
    table = tmp_path / "people.jsonl"
    table.write_text("".join(json.dumps({"title": title, "text": "A text. It ends ."}) + "\n" for title in titles))
    proposed = []
    monkeypatch.setattr(write, "check_installed", lambda *libraries: None)
    for step in ("list_versions", "bundle_runtime", "export_versions"):
        monkeypatch.setattr(write, step, lambda *arguments: None)
    monkeypatch.setattr(write, "load_models", lambda versions: {"model": "model"})
    monkeypatch.setattr(write, "render_page", lambda *arguments: str(proposed.append(arguments[-2])))
    monkeypatch.setattr(write, "compare_answers", lambda model, titles: str(proposed.append(titles)))
    run(write, "--model_name_or_path", "model", "--corpus_file", table, "--output_dir", tmp_path / "page")
    assert proposed == [["Dr. No", "Ada Byron"]] * 2


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (200, 200), (201, 101), (399, 200), (400, 200), (1000, 200)])
def test_titles_are_proposed_from_the_whole_corpus(count, expected):
    thinned = write.thin_out(list(range(count)), 200)
    assert len(thinned) == expected
    assert not count or (thinned[0] == 0 and thinned[-1] >= count - count / expected)


def test_versions_are_the_checkpoints_in_their_order_and_then_the_model(models, tmp_path):
    for step in (40, 30, 20, 3):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if step == 30:  # the finished model is the best, not the last one
            shutil.copy(f"{models[0]}/model.safetensors", tmp_path / "checkpoint-30")
        seal_checkpoint(tmp_path / f"checkpoint-{step}")
    arguments = PageArguments(models[:1], checkpoints_dir=str(tmp_path))
    labels = [(label, path) for _, label, path in write.list_versions(arguments)]
    checkpoints = [(f"step {step}", str(tmp_path / f"checkpoint-{step}")) for step in (3, 20)]
    assert labels == [*checkpoints, ("the end", models[0])]
    (tmp_path / "checkpoint-20" / "checksums.json").write_text("")
    with pytest.raises(BadInput, match="checkpoint-20: was cut off"):
        write.list_versions(arguments)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_page_reads_questions_and_marks_evidence_as_the_demo_does():
    def compute(expression):
        script = f"{(ROOT / 'posgpt/extras/page/answers.js').read_text()}; console.log(JSON.stringify({expression}))"
        return json.loads(subprocess.run(["node", "-e", script], capture_output=True, check=True, text=True).stdout)

    mother = Relation("mother", ("Where was the mother of {title} born?",))
    director = Relation("director", ("Who directed {title}", "Who directed {title}?"))
    read = (BIRTHPLACE, BIRTH_YEAR, mother, director)
    relations = json.dumps([{"wordings": relation.wordings} for relation in read])
    for line, chosen, expected in (
        ("Ada", 1, ("Ada", BIRTH_YEAR.ask("Ada"))),
        (BIRTH_YEAR.ask("Ada"), 0, ("Ada", BIRTH_YEAR.ask("Ada"))),
        (BIRTHPLACE.ask(" "), 0, (None, BIRTHPLACE.ask(" "))),
        (mother.ask("Ada"), 0, ("Ada", mother.ask("Ada"))),
        ("When was Ada born", 0, (None, "When was Ada born")),
        ("Where Art Thou?", 0, ("Where Art Thou?", BIRTHPLACE.ask("Where Art Thou?"))),
        ("Who directed Heat?", 0, ("Heat", "Who directed Heat?")),
        ("$& Ada?", len(read), (None, "$& Ada?")),
    ):
        found = compute(f"readQuestion({json.dumps(line)}, {relations}, {relations}[{chosen}])")
        assert (found["title"], found["question"]) == expected
    text = "A. (B) lived in New York, not York, Yorkshire or McYork, 生于成都。"
    parts = compute(f"markEvidence({json.dumps(text)}, 'A. (B)', ['York', 'New York', '', '成都'])")
    marked = [(part["part"], part["kind"]) for part in parts if part["kind"]]
    assert marked == [("A. (B)", "title"), ("New York", "said"), ("York", "said"), ("成都", "said")]
    assert "".join(part["part"] for part in parts) == text
    parts = compute("markEvidence('York. Born in Yorkshire .', 'York', ['Yorkshire'])")
    assert [part["kind"] for part in parts if part["kind"]] == ["title", "said"]
    parts = compute("markEvidence('สม. เกิดที่กรุงเทพ', 'สม', ['กรุงเทพ'])")
    assert [part["part"] for part in parts if part["kind"]] == ["สม", "กรุงเทพ"]
    parts = compute("markEvidence('राम. दिल्ली में, दिल में', 'राम', ['दिल'])")
    assert "".join(part["part"] for part in parts[:2]) == "राम" and [part["kind"] for part in parts].count("said") == 1


def write_page(folder, *arguments):
    """Run the command, with exact weights; return the page."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm (Debian: apt-get install npm)")
    arguments = [*map(str, arguments), "--output_dir", str(folder), "--weights", "float32", "--abstain_below", "0"]
    with mock.patch.object(sys, "argv", ["write.py", "--model_name_or_path", *arguments]):
        try:
            write.main()
        except SystemExit as stopped:
            if "npm ci failed" in str(stopped):
                pytest.skip(f"needs what npm downloads: {stopped}")
            raise
    return folder / "index.html"


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("selenium", reason="needs selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for option in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"):
        options.add_argument(option)
    options.add_argument("--disable-background-networking")
    options.add_argument("--disable-component-update")
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def page(export, browser, models, corpus, tmp_path_factory):
    """The browser with the page of both models."""
    file = write_page(tmp_path_factory.mktemp("pages") / "page", *models, "--corpus_file", corpus)
    browser.get(file.as_uri())
    return browser


def ask(page, text):
    """Type a text, press Enter and wait for what the page says; return that."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(page, 120).until(lambda page: "Loading" not in page.find_element("id", "status").text)
    field = page.find_element("id", "title")
    field.clear()
    page.execute_script("document.getElementById('status').textContent = ''")
    field.send_keys(text, "\n")
    said = page.find_element("id", "status")
    WebDriverWait(page, 120).until(lambda page: said.text and "Thinking" not in said.text)
    return said.text


def test_both_models_answer_as_the_demo_does(page, models):
    app = pytest.importorskip("posgpt.extras.demo", reason="needs the demo's libraries", exc_type=ImportError)
    assert ask(page, "Ada Byron").startswith("Answered in")
    assert page.find_element("id", "question").text == QUESTION
    found = page.execute_script("return asked.answers")
    assert len(page.find_elements("css selector", ".card")) == 2
    for folder, answer_of_page in zip(models, found, strict=True):
        model, tokenizer = app.load_once(folder)
        expected = app.find_best_answers(model, tokenizer, QUESTION)
        assert [each["text"] for each in answer_of_page["best"]] == [text for text, _ in expected]
        probabilities = [each["probability"] for each in answer_of_page["best"]]
        assert probabilities == pytest.approx([probability for _, probability in expected], rel=1e-3)
        attention = torch.tensor(answer_of_page["attention"]).mean(1)
        own = [[weight for _, weight in layer] for layer in app.measure_attention(model, tokenizer, QUESTION)]
        torch.testing.assert_close(
            attention / attention.amax(1, keepdim=True), torch.tensor(own), atol=1e-4, rtol=1e-3
        )
    assert [mark.text for mark in page.find_elements("css selector", "mark.title")] == ["Ada Byron"] * 2
    assert "Line 1 of the corpus" in page.find_element("id", "evidence").text


def test_a_layer_and_a_head_are_chosen_and_the_answer_may_be_that_it_does_not_know(page):
    ask(page, "Ada Byron")
    layer, head = page.find_elements("css selector", ".card:first-child .choose select")
    before = page.find_element("css selector", ".attention").get_attribute("innerHTML")
    layer.send_keys("1")
    head.send_keys("2")
    row = page.find_element("css selector", ".attention")
    assert row.get_attribute("innerHTML") != before and row.text == QUESTION + MASK_TOKEN
    weights = page.execute_script("return asked.answers[0].attention[0][1]")
    assert f"{100 * max(weights):.1f} %" in page.find_element("css selector", ".attention + .note").text
    page.execute_script(
        "const abstain = find('abstain'); abstain.value = 1; abstain.dispatchEvent(new Event('input'))"
    )
    assert page.find_element("css selector", ".answer").text == "I don’t know"
    page.execute_script(
        "const abstain = find('abstain'); abstain.value = 0; abstain.dispatchEvent(new Event('input'))"
    )
    assert page.find_element("css selector", ".answer").text != "I don’t know"


def test_a_whole_question_is_read_and_what_cannot_be_asked_is_said(page):
    question = BIRTH_YEAR.ask("Ada Byron")
    ask(page, question)
    assert page.find_element("id", "question").text == question
    assert len(page.find_elements("css selector", "mark.title")) == 2
    assert "has 90 characters" in ask(page, "A" * 90)
    assert not page.find_elements("css selector", ".card")


def test_html_is_text_like_any_other(page):
    ask(page, "<img src=x onerror=document.title='run'>")
    assert "<img src=x onerror" in page.find_element("id", "question").text
    assert "no document of this name" in page.find_element("id", "evidence").text
    ask(page, "Eve Ill")
    assert "<img src=x onerror" in page.find_element("id", "evidence").text
    assert page.title == "Ask a PosGPT" and not page.find_elements("tag name", "img")


def test_no_request_leaves_the_page(page):
    ask(page, "Ada Byron")
    assert page.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)") == []
    refused = page.execute_async_script(
        "const done = arguments[0], refused = [];"
        "document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective));"
        "new Image().src = 'http://127.0.0.1:9/';"
        "fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done(refused), 200));"
    )
    assert sorted(refused) == ["connect-src", "img-src"]


def test_it_fits_a_phone(page):
    ask(page, "Ada Byron")
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 375, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    )
    assert page.execute_script("return document.documentElement.scrollWidth") <= 375
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_a_slider_goes_through_the_checkpoints(export, browser, models, tmp_path):
    checkpoint = tmp_path / "training" / "checkpoint-7"
    shutil.copytree(models[0], checkpoint)
    weights = load_file(checkpoint / "model.safetensors")
    weights["lm_head.weight"].zero_()
    save_file(weights, checkpoint / "model.safetensors")
    seal_checkpoint(checkpoint)
    page = write_page(tmp_path / "page", models[0], "--checkpoints_dir", checkpoint.parent)
    browser.get(page.as_uri())
    ask(browser, "Ada Byron")
    assert browser.find_element("id", "version-name").text == "the end"
    at_the_end = browser.execute_script("return asked.answers[0].best[0].probability")
    browser.find_element("id", "version").send_keys("\ue012")  # the left arrow
    assert browser.find_element("id", "version-name").text == "step 7"
    ask(browser, "Ada Byron")
    # At that step every character is as likely as any other, and the end as well.
    size = len(weights["lm_head.weight"])
    assert browser.execute_script("return asked.answers[0].best[0].probability") == pytest.approx(1 / size, rel=1e-4)
    assert at_the_end != pytest.approx(1 / size, rel=0.01)
