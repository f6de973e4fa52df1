"""The demo's server, asked by programs instead of a browser: it survives what they send, and gives nothing away."""

import json
import re
from http.client import HTTPConnection
from threading import Thread

import psutil
import pytest

from data_scripts.relations import BIRTHPLACE
from model_helpers import tiny_model
from modeling_posgpt import build_tokenizer
from posgpt.extras.page import demo
from posgpt.extras.page.view import load_page_models


@pytest.fixture(scope="module")
def port(world, tmp_path_factory):
    """The port of a server with a model that has a bottleneck, which the written page does not take."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer([(world / "wiki.txt").read_text()], 64)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "num_hidden_layers": 3}
    tiny_model("learned", **sizes, bottleneck_size=8, relations=BIRTHPLACE.to_config()).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    arguments = demo.DemoArguments(corpus_file=str(world / "wiki.txt"), port=0)
    with demo.Server(load_page_models([str(folder)]), arguments) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def send(port: int, path: str, data: object = None, **headers: str) -> tuple[int, str]:
    """Return status and text of the answer; `data` is posted as JSON, bytes as they are."""
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET" if data is None else "POST", path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def ask(port: int, question: object, title: object = None) -> dict:
    status, text = send(port, "/ask", {"question": question, "title": title})
    assert status == 200
    return json.loads(text)


def test_a_question_is_answered_with_the_documents_of_its_title(port, world):
    document = (world / "wiki.txt").read_text().splitlines()[0]
    name = document.split(". ")[0]
    shown = ask(port, BIRTHPLACE.ask(name), name)
    assert shown["documents"] == [["line 1", document]]
    in_capitals = ask(port, BIRTHPLACE.ask(name.upper()), name.upper())
    assert in_capitals == shown, "the model is asked by the corpus's spelling"
    (answer,) = shown["answers"]
    probabilities = [each["probability"] for each in answer["best"]]
    assert len(probabilities) == 5 and probabilities == sorted(probabilities, reverse=True) and max(probabilities) <= 1
    # A model with a bottleneck attends to no characters.
    assert answer["attention"] == [] and answer["unknown"] == []
    assert ask(port, "Ada 😀")["answers"][0]["unknown"] == ["😀"] and ask(port, "Ada")["documents"] is None
    assert ask(port, "Ada", "Ada")["documents"] == []


def test_a_corpus_that_cannot_be_read_to_its_end_opens_no_page(run, tmp_path, tiny_pretrained):
    (tmp_path / "wiki.txt").write_text("Ada. Born in Rome .\nBo. Born in Oslo⁇ .\n")
    with pytest.raises(SystemExit, match="wiki.txt, line 2: holds '⁇'"):
        run(demo, "--model_name_or_path", tiny_pretrained["rotary"], "--corpus_file", tmp_path / "wiki.txt")


@pytest.mark.parametrize(
    "posted, said",
    [
        ({"question": "A" * 300, "title": None}, "“AAAA.*” has 300 characters; .* reads at most 61 there"),
        ({"question": "Where is AAA?", "title": None}, None),
        ({"question": "Ada"}, "title"),
        ({"question": "⁇", "title": None}, "is not a question"),
        ({"question": None, "title": None}, "post a question that is a text"),
        ({"title": "Ada"}, "post a question that is a text"),
        (["Where was Ada born?"], "post a question that is a text"),
        ({"question": "Where is AAA?", "title": 5}, "a title that is one or null"),
        (b"{", "Expecting"),
        (b"\xff", "codec can't decode"),
    ],
)
def test_whatever_is_posted_is_answered_in_a_line(port, posted, said):
    status, text = send(port, "/ask", posted)
    error = json.loads(text).get("error", "")
    assert status == 200 and "\n" not in error and bool(error) == bool(said) and re.search(said or "", error)


def test_only_the_page_and_answers_are_served_and_to_this_machines_names_alone(port, world):
    assert send(port, "/")[0] == send(port, "/", Host=f"localhost:{port}")[0] == 200
    # On port 80, browsers leave it out.
    assert send(port, "/", Host="127.0.0.1")[0] == 200
    question = {"question": "Ada", "title": None}
    for path, data, headers in (
        ("/", None, {"Host": "example.org"}),
        ("/ask", question, {"Host": f"example.org:{port}"}),
        ("/ask", None, {}),
        ("/", question, {}),
        ("/wiki.txt", None, {}),
        (f"/{world}/wiki.txt", None, {}),
        ("/../../etc/passwd", None, {}),
        ("http://localhost/", None, {}),
    ):
        assert send(port, path, data, **headers)[0] == 404, path
    listening = [own.laddr for own in psutil.Process().net_connections() if own.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == port] == ["127.0.0.1"]


def test_without_a_model_it_says_how_to_make_one_and_what_is_not_there_or_taken_is_named(
    run, tmp_path, port, tiny_pretrained, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        ([], "posgpt quickstart"),
        (["--model_name_or_path", tiny_pretrained["rotary"], "--port", port], f"port {port}: Address already in use"),
        (["--model_name_or_path", tiny_pretrained["rotary"], "--corpus_file", "none.txt"], "no such file"),
    ):
        with pytest.raises(SystemExit, match=said) as stopped:
            run(demo, *arguments)
        assert "\n" not in str(stopped.value)
