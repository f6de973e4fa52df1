"""The page's server, asked by programs instead of a browser: it survives what they send, and gives nothing away."""

import json
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub import find_free_port

pytest.importorskip("gradio", reason="needs the demo's libraries")

import gradio

from data_scripts.relations import BIRTHPLACE
from model_helpers import tiny_model
from modeling_posgpt import build_tokenizer
from posgpt.extras import demo as app
from posgpt.templates import load_template

SCRIPT = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server(world, tmp_path_factory):
    """The address of the page, opened by its command for a model whose wording would like to be run."""
    folder, patch = tmp_path_factory.mktemp("model"), pytest.MonkeyPatch()
    tokenizer = build_tokenizer([(world / "wiki.txt").read_text()], 64)
    hostile = {"script": {"wordings": [f"Who is {{title}}{SCRIPT}?"]}}
    sizes = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 64,
        "num_hidden_layers": 1,
        "relations": BIRTHPLACE.to_config() | hostile,
    }
    tiny_model("learned", **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    port = find_free_port()
    pages, launch = [], gradio.Blocks.launch
    patch.setattr(
        gradio.Blocks,
        "launch",
        lambda page, **given: (pages.append(page), launch(page, prevent_thread_lock=True, **given)),
    )
    patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    # The page is found past a proxy, here one that nobody answers at.
    patch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        patch.setenv(name, "localhost")
    patch.chdir(world)
    arguments = ["--model_name_or_path", str(folder), "--corpus_file", "wiki.txt", "--port", str(port)]
    patch.setattr("sys.argv", ["posgpt demo", *arguments])
    app.main()
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        patch.delenv(name)
    yield f"http://127.0.0.1:{port}", str(folder)
    pages[0].close()
    patch.undo()


def send(url: str, data: object = None, **headers: str) -> tuple[int, str]:
    """Return status and text of the answer; `data` is posted as JSON, bytes as they are."""
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    try:
        with urlopen(Request(url, body, {"Content-Type": "application/json"} | headers), timeout=300) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def ask(address: str, *data: object) -> str:
    """Ask as the page's button does; return what it shows."""
    status, started = send(f"{address}/gradio_api/call/ask", {"data": data})
    assert status == 200, started
    _, events = send(f"{address}/gradio_api/call/ask/{json.loads(started)['event_id']}")
    assert "event: complete" in events, events
    return json.loads(events.split("data: ")[-1])[0]


def test_fifty_requests_at_once_are_all_answered(server):
    address, model = server
    # So long that there is room for few characters, since each of them takes its time.
    names = [f"Name {'x' * 36} {number}" for number in range(50)]
    with ThreadPoolExecutor(50) as pool:
        shown = list(pool.map(lambda name: ask(address, name, BIRTHPLACE.form, model, None, 0), names))
    for name, answer in zip(names, shown, strict=True):
        assert f">{name}</h3>" in answer


def test_fields_of_ten_megabytes_and_of_other_kinds_are_answered_in_a_line(server):
    address, model = server
    long = "A" * 10_000_000
    for text, name, said in (
        (long, model, "10,000,000 characters"),
        ("Ada", long, "error"),
        ("Ada", "../../../etc", "error"),
        ("Ada", SCRIPT, "no PosGPT could be loaded"),
        ("Ada", [model], "no PosGPT could be loaded"),
        (None, model, "Give a name"),
        (["Ada"], model, "Ada"),
        ("\ud800", model, ">?</h3>"),
    ):
        shown = ask(address, text, BIRTHPLACE.form, name, None, 0.5)
        assert said in shown or said == "error" and 'role="alert"' in shown, shown
        assert len(shown) < 20_000 and SCRIPT not in shown
    for url, data in (
        ("call/ask", b"{"),
        ("call/ask", {"data": []}),
        ("call/ask", {"data": long}),
        ("queue/join", {}),
        ("run/x", 0),
    ):
        send(f"{address}/gradio_api/{url}", data)
    assert ">Ada</h3>" in ask(address, "Ada", BIRTHPLACE.form, model, None, 0.5)


def test_it_listens_on_the_loopback_address_alone(server):
    port = int(server[0].split(":")[-1])
    listening = [own.laddr for own in psutil.Process().net_connections() if own.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == port] == ["127.0.0.1"]


def test_it_serves_no_file_and_takes_none(server, world):
    address, model = server
    config = Path(model) / "config.json"
    for path in (config, world / "wiki.txt", "wiki.txt", "/etc/passwd", "../wiki.txt", "..%2f..%2fetc/passwd"):
        for route in (
            "gradio_api/file=",
            "file=",
            "gradio_api/file/",
            "static/",
            "assets/",
            "svelte/",
            "",
            "gradio_api/proxy=file://",
        ):
            status, text = send(f"{address}/{route}{path}")
            assert status in (403, 404) and "hidden_size" not in text and "root:" not in text, (route, path)
    assert send(f"{address}/gradio_api/file=https://localhost/")[0] == 404
    multipart = b'--x\r\nContent-Disposition: form-data; name="video"; filename="x"\r\n\r\nx\r\n--x--\r\n'
    for route in ("upload", "process_recording", "deep_link", "vibe-edit", "run-history/", "component_server", "user"):
        for data in (multipart, None):
            kind = {"Content-Type": "multipart/form-data; boundary=x"}
            assert send(f"{address}/gradio_api/{route}", data, **kind)[0] == 404, route


def test_what_a_model_or_a_name_says_is_text(server):
    address, model = server
    assert SCRIPT not in send(f"{address}/config")[1].replace("\\u003c", "<").split('"choices"')[0]
    shown = ask(address, SCRIPT, BIRTHPLACE.form, model, None, 0)
    assert SCRIPT not in shown and "&lt;img" in shown


@settings(deadline=None, max_examples=30)
@given(st.text(min_size=1, max_size=20))
def test_every_text_is_shown_as_it_is(text):
    tags, texts = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            tags.append((tag, len(attributes)))

        def handle_data(self, data):
            texts.append(data)

    def render(value):
        tags.clear(), texts.clear()
        answer = {
            "model": value,
            "positions": value,
            "best": [(value, 0.7)],
            "attention": [[(value, 0.5)]],
            "unknown": [value],
        }
        documents = [{"line": 1, "parts": [(value, "said"), (value, "")]}]
        people = [{"name": value, "question": value, "answers": [answer], "documents": documents}]
        template = load_template("posgpt.extras", "answers.html.jinja")
        Reader().feed(template.render(people=people, abstain_below=0.5, corpus=True) + template.render(error=value))
        return list(tags)

    assert render(text) == render("plain")
    render(text)
    assert not text.strip() or text.strip() in "".join(texts)
