"""A page to ask a PosGPT where people were born, and to see how sure it is and what it looks at.

    python -m demo.app --model_name_or_path runs/windows --corpus_file wiki.txt

Without arguments it asks the model that `make quickstart` trained. The page is served to this machine alone.
"""

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import gradio as gr
import jinja2
import torch
from transformers import PreTrainedTokenizerBase

from data_scripts.birthplaces import QUESTION_END, QUESTION_START, name_in, unknown_characters
from data_scripts.text_files import BadInput, bad_input_in_one_line, check_at_least, check_is_file
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from reporting.evidence import find_documents
from training import WEIGHTS_FILE, OneLineArgumentParser, load_model, parse_into

QUICKSTART = Path("runs/quickstart")
MAX_NAMES, MAX_CHARACTERS = 50, 10_000
BEST = 5

PAGE = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
).get_template("answers.html.jinja")


@dataclass
class DemoArguments:
    """What to ask, and where."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A PosGPT: a folder or a name on the hub (default: the quickstart's)."}
    )
    compare_with: str | None = field(default=None, metadata={"help": "A second one, asked the same."})
    corpus_file: str | None = field(
        default=None, metadata={"help": "The corpus that was read, for evidence (default: the quickstart's)."}
    )
    abstain_below: float = field(default=0.5, metadata={"help": "The confidence below which nothing is claimed."})
    port: int = field(default=7860, metadata={"help": "The port on the loopback address."})


def names_in(text: str) -> list[str]:
    """The names that somebody wrote, one a line; whole questions count as names, too.

    Raises:
        BadInput: there is none, or too much.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadInput(f"This is {len(text):,} characters; give at most {MAX_CHARACTERS:,}.")
    names = [name_in(line.strip()) for line in text.splitlines() if line.strip()]
    if not names:
        raise BadInput("Give a name, or several, one a line.")
    if len(names) > MAX_NAMES:
        raise BadInput(f"These are {len(names)} names; give at most {MAX_NAMES} at a time.")
    return names


@torch.inference_mode()
def best_answers(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, question: str, beams: int = BEST
) -> list[tuple[str, float]]:
    """The likeliest answers that a beam search finds, and the probability of each."""
    inputs = tokenizer(question + MASK_TOKEN, return_tensors="pt").to(model.device)
    length = inputs["input_ids"].shape[1]
    generated = model.generate(
        **inputs,
        max_new_tokens=min(32, model.config.max_position_embeddings - length),
        do_sample=False,
        num_beams=2 * beams,
        num_return_sequences=beams,
        # The score is then the log-probability of the whole answer.
        length_penalty=0.0,
        early_stopping=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = [tokenizer.decode(ids).partition(MASK_TOKEN)[0] for ids in generated.sequences[:, length:]]
    return list(zip(texts, generated.sequences_scores.float().exp().tolist(), strict=True))


@torch.inference_mode()
def attention_to(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, question: str
) -> list[list[tuple[str, float]]]:
    """For each layer, the question's characters and how much the `⁇` that asks looks at each: mean over the heads, 0 to 1.

    The largest of a layer is drawn as 1.
    """
    ids = tokenizer(question + MASK_TOKEN, return_tensors="pt")["input_ids"].to(model.device)
    layers = []
    for weights in model(ids, output_attentions=True).attentions:
        seen = weights[0, :, -1].float().mean(0)
        layers.append(list(zip(question + MASK_TOKEN, (seen / seen.max()).tolist(), strict=True)))
    return layers


class Demo:
    """The models that are loaded, and the corpus."""

    def __init__(self, corpus_file: str | None):
        self.corpus_file = corpus_file
        # Attention weights are there only when attention is written out.
        self.load = lru_cache(maxsize=4)(lambda name: load_model(name, attn_implementation="eager"))

    def ask(self, text: str, model_name: str, other_name: str | None, abstain_below: float) -> str:
        """Answer as HTML; what is wrong with the input is said there, too."""
        try:
            names = names_in(text)
            models = {name: self.load(name) for name in (model_name, other_name) if name}
            documents = find_documents(self.corpus_file, names) if self.corpus_file else {}
            people = [
                {
                    "name": name,
                    "answers": [self._answer(name, model_name, *loaded) for model_name, loaded in models.items()],
                    "documents": documents.get(name, []),
                }
                for name in names
            ]
        except BadInput as error:
            return PAGE.render(error=str(error))
        return PAGE.render(people=people, abstain_below=abstain_below, corpus=self.corpus_file is not None)

    def _answer(
        self, name: str, model_name: str, model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase
    ) -> dict:
        question = f"{QUESTION_START}{name}{QUESTION_END}"
        room = model.config.max_position_embeddings - len(question) - 2 * len(MASK_TOKEN)
        if room < 1:
            most = len(name) + room - 1
            raise BadInput(f"“{name[:40]}…” has {len(name)} characters; {model_name} reads names of at most {most}.")
        return {
            "model": model_name,
            "positions": model.config.position_embedding_type,
            "best": best_answers(model, tokenizer, question),
            # Who reads through latents does not look at characters.
            "attention": attention_to(model, tokenizer, question) if model.config.bottleneck_size is None else [],
            "unknown": sorted(unknown_characters([question], tokenizer)),
        }


def checkpoints() -> list[str]:
    """Model folders below `runs`, the newest first."""
    found = sorted(Path("runs").glob(f"**/{WEIGHTS_FILE}"), key=lambda file: -file.stat().st_mtime)
    return [str(file.parent) for file in found if "checkpoint-" not in file.parent.name]


def build_page(demo: Demo, arguments: DemoArguments) -> gr.Blocks:
    """The page that asks `demo`."""
    choices = checkpoints()
    with gr.Blocks(title="PosGPT", analytics_enabled=False) as page:
        gr.Markdown(
            "# Where were they born?\nOne name, or several, one a line. A small GPT answers from memory alone."
        )
        with gr.Row():
            with gr.Column(scale=1):
                names = gr.Textbox(label="Names", lines=3, max_lines=12, max_length=MAX_CHARACTERS + 1, autofocus=True)
                model = gr.Dropdown(
                    choices, value=arguments.model_name_or_path, label="Model", allow_custom_value=True,
                    info="a folder, or a name on the hub",
                )  # fmt: skip
                other = gr.Dropdown(
                    choices, value=arguments.compare_with, label="Compare with", allow_custom_value=True
                )
                abstain_below = gr.Slider(0, 1, arguments.abstain_below, label="“I don't know” below")
                button = gr.Button("Ask", variant="primary")
            with gr.Column(scale=2):
                answers = gr.HTML(elem_id="answers")
        inputs = [names, model, other, abstain_below]
        gr.on([button.click, names.submit], demo.ask, inputs, answers, api_name="ask")
    return page


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(DemoArguments), sys.argv[1:])
    if arguments.model_name_or_path is None:
        arguments.model_name_or_path = str(QUICKSTART / "pretrain")
        if not (QUICKSTART / "pretrain" / WEIGHTS_FILE).is_file():
            raise BadInput(
                f"{QUICKSTART / 'pretrain'}: no model there yet; make one with `make quickstart`, or name yours with"
                " --model_name_or_path."
            )
        if arguments.corpus_file is None:
            arguments.corpus_file = str(QUICKSTART / "world" / "wiki.txt")
    if arguments.corpus_file is not None:
        check_is_file(arguments.corpus_file, "corpus")
    check_at_least(1, port=arguments.port)
    if arguments.port > 65535:
        raise BadInput(f"port is {arguments.port}; choose at most 65535.")
    demo = Demo(arguments.corpus_file)
    # Refuses what is no model before a page promises one.
    demo.load(arguments.model_name_or_path)
    page = build_page(demo, arguments)
    print(f"http://127.0.0.1:{arguments.port} asks {arguments.model_name_or_path}; Ctrl-C ends it.", flush=True)
    try:
        page.launch(server_name="127.0.0.1", server_port=arguments.port, share=False, quiet=True, footer_links=[])
    except OSError:
        raise BadInput(f"port {arguments.port} is taken; choose another with --port.") from None


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
