"""A page to ask a PosGPT, e.g. where people were born, and to see how sure it is and what it looks at.

    posgpt demo --model_name_or_path runs/windows --corpus_file wiki.txt

Without arguments it asks the model that the quickstart trained. The page is that of `posgpt page`, served to this machine alone.
"""

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Lock
from typing import Annotated, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import torch

from data_scripts.documents import Columns, check_columns, read_rows
from data_scripts.errors import BadInput, shorten_error
from data_scripts.files import CORPUS_FILE
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import count_unknown_characters
from data_scripts.relations import find_relation, read_relations
from modeling_posgpt import MASK_TOKEN
from posgpt.evaluation.evidence import find_documents
from posgpt.extras.page.view import PageModel, load_page_models, render_page
from posgpt.quickstart import QuickstartArguments
from posgpt.training.checkpoints import WEIGHTS_FILE

QUICKSTART = Path(QuickstartArguments.output_dir)
BEST = 5


@dataclass
class DemoArguments(Columns):
    """Which model to ask, and where."""

    model_name_or_path: list[str] | None = option(
        "One PosGPT, or two to compare: folders or names on the hub (default: the quickstart's).", default=None
    )
    corpus_file: str | None = option(
        "The corpus that the model has read, for evidence (default: the quickstart's, if no model is named).",
        default=None,
    )
    abstain_below: Annotated[float, Range(0, 1)] = option("Below this confidence, it says: I don't know.", default=0.5)
    port: Annotated[int, Range(1, 65535)] = option("The port on the loopback address.", default=7860)


@torch.inference_mode()
def ask_model(page_model: PageModel, typed: str, question: str) -> dict[str, Any]:
    """Ask a model a question, of which the title or all was `typed`; return what the page shows of its answer.

    That is the BEST likeliest answers that a beam search finds, and how much the `⁇` of the question attends to each character:
    (layers)(heads)(characters), none with a bottleneck. Raises BadInput for what is too long for the model.
    """
    name, model, tokenizer = page_model
    # Of the answer alone, without the `⁇` that ends it.
    room = model.count_free_positions(question) - len(MASK_TOKEN)
    if room < 1:
        raise BadInput(
            f"“{typed[:40]}…” has {len(typed)} characters; {name} reads at most {len(typed) + room - 1} there."
        )
    inputs = tokenizer(question + MASK_TOKEN, return_tensors="pt").to(model.device)
    (best,) = model.list_answers([question], tokenizer, BEST)
    read = model(**inputs, output_attentions=True) if model.config.bottleneck_size is None else None
    return {
        "best": list(map(asdict, best)),
        "attention": [weights[0, :, -1].float().tolist() for weights in read.attentions] if read else [],
        "unknown": sorted(count_unknown_characters([question], tokenizer)),
    }


class Server(ThreadingMixIn, WSGIServer):
    """Serves the page at `/`, and at `/ask` the answers to the question that it posts as JSON, on this machine alone."""

    daemon_threads = True

    def __init__(self, models: list[PageModel], arguments: DemoArguments):
        self.models, self.arguments, self.lock = models, arguments, Lock()
        self.page = render_page(
            models,
            [files(__package__).joinpath("server.js").read_text("utf-8")],
            arguments.abstain_below,
            promise="All is answered on this machine, and the page is served to nobody else.",
            credits="",
        )
        super().__init__(("127.0.0.1", arguments.port), Handler)
        self.set_app(self.reply)

    def ask(self, posted: bytes) -> dict[str, Any]:
        """Ask the models `question`, about `title` if that is not null; return what the page shows, or what is wrong."""
        try:
            match json.loads(posted):
                case {"question": str() as question, "title": str() | None as title}:
                    pass
                case _:
                    raise ValueError("post a question that is a text, and a title that is one or null")
            documents = None
            if title and self.arguments.corpus_file:
                found = find_documents(self.arguments.corpus_file, [title], self.arguments).get(title, [])
                documents = [[document.where, document.text] for document in found]
                # As the corpus spells it.
                if found:
                    relation = find_relation(question, read_relations(self.models[0].model.config.relations))
                    question = relation.replace_title(question, {title: found[0].title}) if relation else question
                    title = found[0].title
            # One question at a time: a model's own arithmetic uses all cores.
            with self.lock:
                answers = [ask_model(page_model, title or question, question) for page_model in self.models]
            return {"title": title, "question": question, "answers": answers, "documents": documents}
        except (BadInput, OSError, ValueError) as error:
            return {"error": shorten_error(error)}

    def reply(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Return what a request is for: not found if it is something else, or if another site's name leads here."""
        host = environ.get("HTTP_HOST", "").partition(":")[0]
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}" if host in ("127.0.0.1", "localhost") else ""
        status, content_type, body = "200 OK", "text/html", self.page
        if request == "POST /ask":
            posted = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            content_type, body = "application/json", json.dumps(self.ask(posted))
        elif request != "GET /":
            status, body = "404 Not Found", "Not found"
        start_response(status, [("Content-Type", f"{content_type}; charset=utf-8")])
        return [body.encode()]


class Handler(WSGIRequestHandler):
    """Reads a request."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of it."""


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(DemoArguments, argv)
    check_columns(arguments, arguments.corpus_file or arguments.model_name_or_path is None)
    names = arguments.model_name_or_path or [str(QUICKSTART / "pretrain")]
    if arguments.model_name_or_path is None:
        model, corpus_file = Path(names[0]), str(QUICKSTART / "world" / CORPUS_FILE)
        if not (model / WEIGHTS_FILE).is_file():
            raise BadInput(f"{model}: no model there; run posgpt quickstart, or name yours with --model_name_or_path.")
        arguments = replace(arguments, corpus_file=arguments.corpus_file or corpus_file)
    if arguments.corpus_file is not None:
        # A corpus that cannot be read is an error here, before the page opens.
        deque(read_rows(arguments.corpus_file, arguments), maxlen=0)
    models = load_page_models(names)
    try:
        server = Server(models, arguments)
    except OSError as error:
        raise BadInput(f"port {arguments.port}: {error.strerror}; choose another with --port.") from None
    print(f"Open http://127.0.0.1:{server.server_port} to ask {models[0].name}; Ctrl-C stops it.", flush=True)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
