"""The page on which models are asked: what is written, and what a browser makes of it, written or served."""

import base64
import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
from html.parser import HTMLParser
from threading import Thread
from unittest import mock

import pytest
import torch

from conftest import ROOT
from data_scripts.errors import BadInput
from data_scripts.files import hash_file
from data_scripts.relations import BIRTH_YEAR, BIRTHPLACE, Relation
from model_helpers import EACH_HOOK, tiny_model, tokens
from modeling_posgpt import MASK_TOKEN, build_tokenizer
from posgpt.extras.page import demo, view, write

DOCUMENTS = ["Ada Byron. Ada Byron was born in Bow .", "Eve Ill. Ill <img src=x onerror=document.title='run'> ."]
# The page asks for the first relation unless told otherwise.
QUESTION = BIRTHPLACE.ask("Ada Byron")
EXPORTED = [pytest.param(name, marks=() if name == "rotary" else pytest.mark.slow) for name in EACH_HOOK]
HOSTILE = "</script><script>alert(1)</script>"


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
    return str(file)


@pytest.mark.parametrize("positions", EXPORTED)
def test_a_row_holds_several_answers_to_one_question(positions):
    runtime = pytest.importorskip("onnxruntime")
    export = pytest.importorskip("posgpt.extras.page.export", reason="needs pip install '.[page]'")
    model = tiny_model(positions, "eager")
    question, first, second = (tokens(1, length, seed=length) for length in (9, 3, 2))
    texts = [torch.cat([question, beginning], dim=1) for beginning in (first, second)]
    # Both beginnings stand behind the question; the second one does not see the first.
    row, mask = torch.cat([question, first, second], dim=1), torch.ones(1, 1, 14, 14, dtype=torch.bool).tril()
    mask[:, :, 12:, 9:12] = False
    inputs = row, torch.tensor([[*range(12), 9, 10]]), mask
    session = runtime.InferenceSession(export.export_model(model).SerializeToString())
    named = {name: value.numpy() for name, value in zip(export.INPUTS, inputs, strict=True)}
    logits, attentions = map(torch.from_numpy, session.run(None, named))
    with torch.no_grad():
        outputs = [model(text, output_attentions=True) for text in texts]
    torch.testing.assert_close(logits[:, :12], outputs[0].logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits[:, 12:], outputs[1].logits[:, 9:], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(attentions[:, :, :12, :12], torch.cat(outputs[0].attentions), atol=1e-5, rtol=1e-4)


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


@pytest.mark.parametrize("content, requests", [({"corpus": b"[]", "model-0": b"\0"}, "none"), (None, "self")])
def test_the_page_holds_everything_and_its_policy_lets_nothing_else_in(models, content, requests):
    page_models = [model._replace(name=HOSTILE) for model in view.load_page_models(models)]
    page = view.render_page(page_models, ["var ort = {};"], 0.5, [HOSTILE], content, promise=HOSTILE, credits=HOSTILE)
    elements = Elements(page).found
    scripts = [(attributes, text) for tag, attributes, text in elements if tag == "script"]
    held = {attributes["id"]: text for attributes, text in scripts if "id" in attributes}
    settings = json.loads(held.pop("settings"))
    assert [model["name"] for model in settings["models"]] == [HOSTILE] * 2 and settings["titles"] == [HOSTILE]
    assert {name: gzip.decompress(base64.b64decode(text)) for name, text in held.items()} == (content or {})
    # Whatever runs or styles is named by its hash; nothing is fetched.
    policy = next(attributes["content"] for tag, attributes, _ in elements if attributes.get("http-equiv"))
    sources = [text for attributes, text in scripts if "id" not in attributes]
    sources += [text for tag, _, text in elements if tag == "style"]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in sources}
    assert len(sources) == 4 and set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert "default-src 'none'" in policy and f"connect-src '{requests}'" in policy
    assert not any({"src", "srcset", "action"} & attributes.keys() for _, attributes, _ in elements)


def test_what_cannot_become_a_page_is_said_in_a_line(models, tmp_path, run, monkeypatch):
    new, there, encoder = (tmp_path / name for name in ("new", "there", "encoder"))
    there.mkdir()
    shutil.copytree(models[0], encoder)
    config = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps(config | {"is_causal": False}))
    # What is wrong is said before these are used.
    monkeypatch.setattr(write, "check_installed", lambda *libraries: None)
    monkeypatch.setattr(shutil, "which", lambda name: "npm")
    for arguments, said in (
        (["--output_dir", there, "--model_name_or_path", models[0]], "already there"),
        (["--output_dir", new, "--model_name_or_path", tmp_path / "none"], "none: no such folder in "),
        (["--output_dir", new, "--model_name_or_path", encoder], "cannot be asked"),
        (["--output_dir", new, "--model_name_or_path", *models, models[0] + "/."], "two at most"),
        (["--output_dir", new, "--model_name_or_path", models[0], "--corpus_file", new], "no such file"),
    ):
        with pytest.raises(SystemExit) as stopped:
            run(write, *arguments)
        assert said in str(stopped.value) and "\n" not in str(stopped.value)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="Node.js"):
        run(write, "--output_dir", new, "--model_name_or_path", models[0])
    assert not new.exists() and not list(there.iterdir())


def test_the_runtime_becomes_a_script_and_what_npm_should_not_have_brought_is_said_in_a_line(monkeypatch, tmp_path):
    module = "let a=1,$b=`${import.meta.url}export{no}`;export{a as Tensor,$b as env};\n//# sourceMappingURL=</script>"
    archive, brought, files = (
        tmp_path / "x.tgz",
        [],
        {"ort.wasm.bundle.min.mjs": module.encode(), "ort-wasm-simd-threaded.wasm": b"\0asm"},
    )

    def run(command, cwd, **options):
        for file in brought[-1:]:
            shutil.copy(file, cwd)
        return subprocess.CompletedProcess(command, 1, stderr="E404 not\nfound\n")

    monkeypatch.setattr(write.subprocess, "run", run)
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/dist/{name}")
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    for _ in range(2):
        with pytest.raises(BadInput, match="npm pack did not bring .*: E404 not found$"):
            write.load_runtime()
        brought.append(archive)
    monkeypatch.setattr(write, "RUNTIME_HASH", hash_file(archive))
    script = 'const ort=(()=>{"use strict";let a=1,$b=`${document.baseURI}export{no}`;;return{Tensor:a,env:$b}})();'
    assert write.load_runtime() == (script, b"\0asm")


@pytest.mark.parametrize(
    "folders, shown",
    [
        ("ab", "ab"),
        (("a/x", "b/x"), ("a/x", "b/x")),
        (("a/x", "b/y"), "xy"),
        (("a/run/x", "b/run/x"), ("a/run/x", "b/run/x")),
    ],
)
def test_models_are_called_what_tells_them_apart(monkeypatch, folders, shown):
    monkeypatch.setattr(view, "load_model", lambda *_, **__: (mock.Mock(), None))
    assert [model.name for model in view.load_page_models(folders)] == list(shown)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_page_finds_titles_in_another_case_unless_several_differ_so():
    source = (ROOT / "posgpt/extras/page/model.js").read_text()
    finding = source[source.index("function listStarts") :]
    corpus = [
        ["Ed. Ek", "Born in Rome", "row 1"],
        [None, "Ada Ek. Born in Oslo .", "line 2"],
        [None, "Bo. Hill .", "line 3"],
        [None, "bo. House .", "line 4"],
        [None, "Straße. Lang .", "line 5"],
        [None, "İstanbul. Şehir .", "line 6"],
    ]
    found = {
        "ada ek": [["line 2", corpus[1][1]]],
        "ED. EK": [["row 1", corpus[0][1]]],
        "Bo": [["line 3", corpus[2][1]]],
        "BO": [],
        "Ad": [],
        "STRASSE": [["line 5", corpus[4][1]]],
        "istanbul": [["line 6", corpus[5][1]]],
    }
    script = f"const corpus = {json.dumps(corpus)}; {finding}; console.log(JSON.stringify({json.dumps(list(found))}.map(findDocuments)))"
    shown = json.loads(subprocess.run(["node", "-e", script], capture_output=True, check=True, text=True).stdout)
    assert [[each["document"] for each in documents] for documents in shown] == list(found.values())


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_page_reads_questions_and_marks_evidence():
    def compute(expression):
        source = (ROOT / "posgpt/extras/page/questions.js").read_text()
        script = f"{source}; console.log(JSON.stringify({expression}))"
        return json.loads(subprocess.run(["node", "-e", script], capture_output=True, check=True, text=True).stdout)

    mother = Relation("mother", ("Where was the mother of {title} born?",))
    director = Relation("director", ("Who directed {title}", "Who directed {title}?"))
    chinese = Relation("出生地", ("{title}出生在哪里？",))
    read = (BIRTHPLACE, BIRTH_YEAR, mother, director, chinese)
    relations = json.dumps([{"wordings": relation.wordings} for relation in read])
    lines = (
        ("Ada", 1, ("Ada", BIRTH_YEAR.ask("Ada"))),
        (BIRTH_YEAR.ask("Ada"), 0, ("Ada", BIRTH_YEAR.ask("Ada"))),
        (BIRTHPLACE.ask(" "), 0, (None, BIRTHPLACE.ask(" "))),
        (mother.ask("Ada"), 0, ("Ada", mother.ask("Ada"))),
        ("When was Ada born", 0, (None, "When was Ada born")),
        ("艾达出生在哪里", 0, (None, "艾达出生在哪里")),
        ("Ποια είναι η γενέτειρα του Ντα Βίντσι;", 0, (None, "Ποια είναι η γενέτειρα του Ντα Βίντσι;")),
        ("Where Art Thou?", 0, ("Where Art Thou?", BIRTHPLACE.ask("Where Art Thou?"))),
        ("What is the birthplace of Ada?", 0, (None, "What is the birthplace of Ada?")),
        ("Who directed Heat?", 0, ("Heat", "Who directed Heat?")),
        ("$& Ada?", len(read), (None, "$& Ada?")),
    )
    # The corpus has one of these titles.
    known = '(line) => line === "Where Art Thou?"'
    calls = [
        f"readQuestion({json.dumps(line)}, {relations}, {relations}[{chosen}], {known})" for line, chosen, _ in lines
    ]
    found = compute(f"[{','.join(calls)}]")
    assert [(each["title"], each["question"]) for each in found] == [expected for *_, expected in lines]
    texts = (
        (
            "A. (B) lived in New York, not York, Yorkshire or McYork, 生于成都。",
            "A. (B)",
            ["York", "New York", "", "成都"],
            [("A. (B)", "title"), ("New York", "said"), ("York", "said"), ("成都", "said")],
        ),
        ("York. Born in Yorkshire .", "York", ["Yorkshire"], [("York", "title"), ("Yorkshire", "said")]),
        ("สม. เกิดที่กรุงเทพ", "สม", ["กรุงเทพ"], [("สม", "title"), ("กรุงเทพ", "said")]),
        ("राम. दिल्ली में, दिल में", "राम", ["दिल"], [("राम", "title"), ("दिल", "said")]),
    )
    for text, title, answers, expected in texts:
        parts = compute(f"markEvidence({json.dumps(text)}, {json.dumps(title)}, {json.dumps(answers)})")
        assert [(part["part"], part["kind"]) for part in parts if part["kind"]] == expected
        assert "".join(part["part"] for part in parts) == text


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("selenium", reason="needs selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for name in ("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"):
        options.add_argument(f"--{name}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module", params=["written", "served"])
def page(request, browser, models, corpus, tmp_path_factory):
    """The browser with the page of both models."""
    if request.param == "served":
        arguments = demo.DemoArguments(corpus_file=corpus, abstain_below=0, port=0)
        with demo.Server(view.load_page_models(models), arguments) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            browser.get(f"http://127.0.0.1:{server.server_port}")
            yield browser
            server.shutdown()
            thread.join()
        return
    if shutil.which("npm") is None:
        pytest.skip("needs npm (Debian: apt-get install npm)")
    pytest.importorskip("posgpt.extras.page.export", reason="needs pip install '.[page]'", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("pages") / "page"
    arguments = [*models, "--corpus_file", corpus, "--output_dir", str(folder), "--abstain_below", "0"]
    with mock.patch.object(sys, "argv", ["write.py", "--model_name_or_path", *arguments]):
        try:
            write.main()
        except BadInput as stopped:
            if "npm pack did not bring" in str(stopped):
                pytest.skip(f"needs what npm downloads: {stopped}")
            raise
    written = folder / "index.html"
    assert '"titles": ["Ada Byron", "Eve Ill"]' in written.read_text(encoding="utf-8")
    browser.get(written.as_uri())
    yield browser


def ask(page, text):
    """Type a text, press Enter and wait for what the page says; return that."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(page, 120).until(lambda page: "Loading" not in page.find_element("id", "status").text)
    field = page.find_element("id", "title")
    page.execute_script("document.getElementById('status').textContent = ''")
    # Signs outside the BMP cannot be typed key by key.
    page.execute_script("arguments[0].value = arguments[1]", field, text)
    field.send_keys("\n")
    said = page.find_element("id", "status")
    WebDriverWait(page, 120).until(lambda page: said.text and "Thinking" not in said.text)
    return said.text


def test_both_models_answer_as_they_are_asked_in_python(page, models):
    assert ask(page, "Ada Byron").startswith("Answered in")
    assert page.find_element("id", "question").text == QUESTION
    found = page.execute_script("return asked.answers")
    assert len(page.find_elements("css selector", ".card")) == 2
    for page_model, shown in zip(view.load_page_models(models), found, strict=True):
        expected = demo.ask_model(page_model, "Ada Byron", QUESTION)
        assert [each["text"] for each in shown["best"]] == [each["text"] for each in expected["best"]]
        for each, own in zip(shown["best"], expected["best"], strict=True):
            assert each["probability"] == pytest.approx(own["probability"], rel=1e-2)
        own = torch.tensor(expected["attention"])
        torch.testing.assert_close(torch.tensor(shown["attention"]), own, atol=1e-3, rtol=1e-2)
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
    for threshold in (1, 0):
        page.execute_script(
            "find('abstain').value = arguments[0]; find('abstain').dispatchEvent(new Event('input'))", threshold
        )
        assert (page.find_element("css selector", ".answer").text == "I don’t know") == bool(threshold)


def test_a_whole_question_is_read_and_what_cannot_be_asked_is_said(page):
    question = BIRTH_YEAR.ask("Ada Byron")
    ask(page, question)
    assert page.find_element("id", "question").text == question
    assert len(page.find_elements("css selector", "mark.title")) == 2
    assert "has 90 characters; rotary reads at most 45 there" in ask(page, "A" * 90)
    assert not page.find_elements("css selector", ".card")


def test_html_and_emoji_are_text_like_any_other(page):
    ask(page, "<img src=x onerror=document.title='run'>")
    assert "<img src=x onerror" in page.find_element("id", "question").text
    assert "no document of this name" in page.find_element("id", "evidence").text
    ask(page, "Eve Ill")
    assert "<img src=x onerror" in page.find_element("id", "evidence").text
    ask(page, "Ada 😀")
    assert "reads as □: 😀" in page.find_element("id", "answers").text
    time.sleep(0.5)
    assert page.title == "Ask a PosGPT" and not page.find_elements("tag name", "img")


def test_no_request_leaves_the_page(page):
    ask(page, "Ada Byron")
    requests = page.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/ask", url) for url in requests)
    refused = page.execute_async_script(
        "const done = arguments[0], refused = [];"
        "document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective));"
        "new Image().src = 'http://127.0.0.1:9/';"
        "fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done(refused), 200));"
    )
    assert sorted(refused) == ["connect-src", "img-src"]
