"""A page to ask a PosGPT, e.g. where people were born, and to see how sure it is and what it looks at.

    posgpt demo --model_name_or_path runs/windows --corpus_file wiki.txt

Without arguments it asks the model that the quickstart trained. The page is served to this machine alone.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Annotated, Any

import gradio as gr
import torch
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from transformers import PreTrainedTokenizerBase

from data_scripts.documents import ColumnArguments, read_rows
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import CORPUS_FILE
from data_scripts.options import Range, option, parse_options, shorten_error
from data_scripts.questions import count_unknown_characters
from data_scripts.relations import Relation, find_relation, read_relations
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from posgpt.evaluation.evidence import Document, find_documents, mark_evidence
from posgpt.quickstart import QuickstartArguments
from posgpt.templates import load_template
from posgpt.training.checkpoints import WEIGHTS_FILE
from posgpt.training.saved_models import load_model

QUICKSTART = Path(QuickstartArguments.output_dir)
# What the page consists of, and the routes by which it, or a program, asks. gradio has others: to read and to upload files, to
# fetch pages from elsewhere, and to change the page.
ROUTES = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json)|/(assets|static|svelte)/.+"
    r"|/gradio_api/(startup-events|app_id|info|cancel|reset|(call|queue|heartbeat)/.+)"
)
MAX_NAMES, MAX_CHARACTERS = 50, 10_000
BEST = 5
# What is chosen in place of a form for text that is not a question about a name.
AS_TYPED = "As I type it"


@dataclass
class DemoArguments(ColumnArguments):
    """Which model to ask, and where."""

    model_name_or_path: str | None = option(
        "A PosGPT: a folder or a name on the hub (default: the quickstart's).", default=None
    )
    compare_with: str | None = option("A second model to ask the same questions.", default=None)
    corpus_file: str | None = option(
        "The corpus that the model has read, for evidence (default: the quickstart's, if no model is named).",
        default=None,
    )
    abstain_below: Annotated[float, Range(0, 1)] = option(
        "The confidence below which the answer is: I don't know.", default=0.5
    )
    port: Annotated[int, Range(1, 65535)] = option("The port on the loopback address.", default=7860)


class OwnRoutes:
    """Middleware that answers requests to other routes than `ROUTES` with: not found."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "lifespan" or ROUTES.fullmatch(scope["path"])
        await (self.app if is_open else PlainTextResponse("Not found", 404))(scope, receive, send)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text that are not blank.

    Raises:
        BadInput: there are none, or too many.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadInput(f"The text has {len(text):,} characters; give at most {MAX_CHARACTERS:,}.")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput("Give a name, or several names, one per line.")
    if len(lines) > MAX_NAMES:
        raise BadInput(f"There are {len(lines)} names; give at most {MAX_NAMES} at a time.")
    return lines


@torch.inference_mode()
def find_best_answers(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, question: str
) -> list[tuple[str, float]]:
    """Return the BEST likeliest answers that a beam search finds, and the probability of each, 0 to 1."""
    inputs = tokenizer(question + MASK_TOKEN, return_tensors="pt").to(model.device)
    length = inputs["input_ids"].shape[1]
    generated: Any = model.generate(
        **inputs,
        max_new_tokens=min(model.config.max_answer_length, model.count_free_positions(question)),
        do_sample=False,
        num_beams=2 * BEST,
        num_return_sequences=BEST,
        # The score is then the log-probability of the whole answer.
        length_penalty=0.0,
        early_stopping=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = [str(tokenizer.decode(ids)).partition(MASK_TOKEN)[0] for ids in generated.sequences[:, length:]]
    return list(zip(texts, generated.sequences_scores.float().exp().tolist(), strict=True))


@torch.inference_mode()
def measure_attention(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, question: str
) -> list[list[tuple[str, float]]]:
    """Return for each layer the question's characters and how much attention its `⁇` pays to each.

    That is the mean over the heads, divided by the layer's largest: 0 to 1.
    """
    ids = tokenizer(question + MASK_TOKEN, return_tensors="pt")["input_ids"].to(model.device)
    layers = []
    for weights in model(ids, output_attentions=True).attentions:
        seen = weights[0, :, -1].float().mean(0)
        layers.append(list(zip(question + MASK_TOKEN, (seen / seen.max()).tolist(), strict=True)))
    return layers


@lru_cache(maxsize=4)
def load_once(name: str) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a model with the attention implementation that returns attention weights.

    Raises:
        BadInput: there is no such model.
    """
    return load_model(name, attn_implementation="eager")


def list_relations(name: str) -> list[Relation]:
    """Load a model and return what it can be asked."""
    return read_relations(load_once(name)[0].config.relations)


def read_question(line: str, relations: Sequence[Relation], form: str) -> tuple[str | None, str]:
    """Read a line: a whole question of one of `relations`, or a name that the question of this `form` is asked about.

    Returns:
        The name, and the question. A line that begins like a question is asked as it is, and has no name; so is any line
        where `form` is `AS_TYPED`.

    Raises:
        BadInput: the line is a name, and none of the relations is of this form.
    """
    relation = find_relation(line, relations)
    if relation is not None:
        return relation.read_title(line), line
    if form == AS_TYPED or any(relation.resembles(line) for relation in relations):
        return None, line
    chosen = next((relation for relation in relations if relation.form == form), None)
    if chosen is None:
        raise BadInput(
            f"The model is not asked “{form[:60]}”; choose another question, or write one whole:"
            f" {' or '.join(relation.form for relation in relations)}."
        )
    return line, chosen.ask(line)


def ask_model(model_name: str, typed: str, question: str) -> dict[str, Any]:
    """Ask a model a question; return what the page shows of its answer.

    Args:
        typed: What of the question is the user's: the name, or all of it.

    Raises:
        BadInput: that is too long for the model.
    """
    model, tokenizer = load_once(model_name)
    # Of the answer alone, without the `⁇` that ends it.
    room = model.count_free_positions(question) - len(MASK_TOKEN)
    if room < 1:
        most = len(typed) + room - 1
        what = "questions" if typed == question else "names"
        raise BadInput(f"“{typed[:40]}…” has {len(typed)} characters; {model_name} reads {what} of at most {most}.")
    return {
        "model": model_name,
        "positions": model.config.position_embedding_type,
        "best": find_best_answers(model, tokenizer, question),
        # A model with a bottleneck attends to no characters.
        "attention": measure_attention(model, tokenizer, question) if model.config.bottleneck_size is None else [],
        "unknown": sorted(count_unknown_characters([question], tokenizer)),
    }


def ask_models(text: str, form: str, models: list[str], arguments: DemoArguments) -> list[dict[str, Any]]:
    """Ask models about each line of a text, a name or a whole question; the first model's relations read the questions.

    Args:
        form: Which question is asked about a name, as `Relation.form`.

    Returns:
        What the page shows of each line: `name` (None: it is asked as it is), `question`, `answers` (one per model) and
        `documents`, each the line and the parts of `mark_evidence`.

    Raises:
        BadInput: the text has no names, too many or too long ones, no model is chosen, or there is no such model.
    """
    lines = split_lines(text)
    if not models:
        raise BadInput("Choose a model.")
    relations = list_relations(models[0])
    questions = [read_question(line, relations, form) for line in lines]
    documents: dict[str, list[Document]] = {}
    if arguments.corpus_file:
        names = [name for name, _ in questions if name is not None]
        documents = find_documents(arguments.corpus_file, names, arguments.columns)
    people = []
    for name, question in questions:
        typed = name or question
        answers = [ask_model(model, typed, question) for model in models]
        given = {answer["best"][0][0] for answer in answers}
        marked = [
            {"line": document.line, "parts": mark_evidence(document.text, typed, given)}
            for document in (documents.get(typed, []) if name else [])
        ]
        people.append({"name": name, "question": question, "answers": answers, "documents": marked})
    return people


def render_answers(
    text: str,
    form: str,
    model_name: str,
    other_name: str | None,
    abstain_below: float,
    arguments: DemoArguments,
) -> str:
    """Return the answers as HTML, or what is wrong with the input."""
    template = load_template("posgpt.demo", "answers.html.jinja")
    try:
        # Comparing a model with itself shows it once.
        people = ask_models(text, form, list(dict.fromkeys(filter(None, (model_name, other_name)))), arguments)
    except (BadInput, OSError) as error:
        return template.render(error=shorten_error(error))
    return template.render(people=people, abstain_below=abstain_below, corpus=arguments.corpus_file is not None)


def list_models() -> list[str]:
    """Return the model folders below `runs`, the newest first."""
    found = sorted(Path("runs").glob(f"**/{WEIGHTS_FILE}"), key=lambda file: -file.stat().st_mtime)
    return [str(file.parent) for file in found if "checkpoint-" not in file.parent.name]


def list_forms(relations: Sequence[Relation]) -> list[str]:
    """Return what may be asked about a name."""
    return [*(relation.form for relation in relations), AS_TYPED]


def offer_forms(model_name: object, form: str) -> Any:
    """Return what a model may be asked about a name, as an update of the page; nothing changes if there is no such model."""
    try:
        forms = list_forms(list_relations(str(model_name or "")))
    except (BadInput, OSError):
        return gr.skip()
    return gr.update(choices=forms, value=form if form in forms else forms[0])


def build_page(arguments: DemoArguments, relations: Sequence[Relation]) -> gr.Blocks:
    """Build the page; with several relations, one is chosen for names, and whole questions may ask for any."""
    choose = partial(gr.Dropdown, list_models(), allow_custom_value=True)

    def ask(text: str | None, form: str, model_name: object, other_name: object, abstain_below: float) -> str:
        # What a browser would not send, a program may: no text, lists for names, halves of characters.
        text, first, second = (
            str(given or "").encode(errors="replace").decode() for given in (text, model_name, other_name)
        )
        return render_answers(text, form, first, second, abstain_below, arguments)

    with gr.Blocks(title="PosGPT", analytics_enabled=False) as page:
        # A model's wordings are text like any other.
        gr.HTML(f"<h1>{escape(' '.join(relation.ask('…') for relation in relations))}</h1>")
        gr.Markdown("Give one or more names or whole questions, one per line. A small GPT answers from memory alone.")
        with gr.Row():
            with gr.Column(scale=1):
                names = gr.Textbox(label="Names", lines=3, max_lines=12, max_length=MAX_CHARACTERS + 1, autofocus=True)
                forms = list_forms(relations)
                form = gr.Dropdown(forms, value=forms[0], label="Asked about a name")
                model = choose(
                    value=arguments.model_name_or_path, label="Model", info="a folder, or a name on the hub"
                )
                other = choose(value=arguments.compare_with, label="Compare with")
                abstain_below = gr.Slider(0, 1, arguments.abstain_below, label="“I don't know” if confidence is below")
                button = gr.Button("Ask", variant="primary")
            with gr.Column(scale=2):
                answers = gr.HTML(elem_id="answers")
        model.change(offer_forms, [model, form], form, api_visibility="private", show_progress="hidden")
        inputs = [names, form, model, other, abstain_below]
        gr.on([button.click, names.submit], ask, inputs, answers, api_name="ask")
    return page


def choose_quickstart(arguments: DemoArguments) -> DemoArguments:
    """Return the arguments with the quickstart's model and corpus where none are given.

    Raises:
        BadInput: the quickstart has not been run.
    """
    folder = QUICKSTART / "pretrain"
    if not (folder / WEIGHTS_FILE).is_file():
        raise BadInput(
            f"{folder}: no model there yet; make one with `posgpt quickstart`, or name yours with --model_name_or_path."
        )
    corpus_file = arguments.corpus_file or str(QUICKSTART / "world" / CORPUS_FILE)
    return replace(arguments, model_name_or_path=str(folder), corpus_file=corpus_file)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(DemoArguments, argv)
    if arguments.model_name_or_path is None:
        arguments = choose_quickstart(arguments)
    if arguments.corpus_file is not None:
        # A corpus that cannot be read is an error here, before the page opens.
        next(iter(read_rows(arguments.corpus_file, arguments.columns)), None)
    # The same holds for a model that cannot be loaded.
    page = build_page(arguments, list_relations(arguments.model_name_or_path))
    address = f"http://127.0.0.1:{arguments.port}"
    # gradio looks whether its page answers, and a proxy would look on another machine.
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
    print(f"Open {address} to ask {arguments.model_name_or_path}; Ctrl-C stops it.", flush=True)
    try:
        page.launch(
            server_name="127.0.0.1",
            server_port=arguments.port,
            share=False,
            quiet=True,
            footer_links=[],
            app_kwargs={"middleware": [Middleware(OwnRoutes)]},
        )
    except OSError:
        raise BadInput(f"port {arguments.port} is taken; choose another with --port.") from None


if __name__ == "__main__":
    main()
