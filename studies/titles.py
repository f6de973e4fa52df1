"""Whether models represent titles, such as names, in questions as in documents, and what they would answer if they did.

    posgpt study titles --models runs/learned runs/alibi --data_dir data

A document begins with `TITLE. TITLE`. Its states are the hidden states of the second title's characters. Two shares, for each layer:

- Titles that match: all titles of the corpus are asked for the first relation of the TSV. A title of the TSV matches if, after the layer, the state of
  its last character in its question is closest to that in its own document. Closeness is the cosine, after subtracting the mean over titles.
- Questions of the TSV that are answered exactly if the layer reads the document's states in place of the title's in the question (activation
  patching; Meng et al. 2022, arXiv 2202.05262).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput
from data_scripts.files import CORPUS_FILE, DEV_FILE, check_is_folder_or_new
from data_scripts.options import option, parse_options
from data_scripts.questions import load_questions
from data_scripts.relations import read_relations
from data_scripts.titles import iterate_titles
from data_scripts.words import find_words
from modeling_posgpt import MASK_TOKEN, PosGPTForCausalLM
from posgpt.evaluation.data import EvaluationData
from posgpt.evaluation.predictions import TEST, Prediction
from posgpt.evaluation.scoring import count_correct
from posgpt.plots import make_panels, save_picture
from posgpt.tables import write_table
from posgpt.training.saved_models import load_model

BATCH_SIZE = 128


@dataclass
class TitleArguments:
    """Which models, and whom to ask them about."""

    models: list[str] = option("PosGPTs that have read documents: folders, or names on the hub.")
    data_dir: str = option(f"Folder with {CORPUS_FILE} and {DEV_FILE}.")
    questions_file: str | None = option(
        f"TSV of the questions to ask (default: {DEV_FILE} in data_dir).", default=None
    )
    output_dir: str = option("Folder for table and chart.", default="runs/titles")


def group_texts(texts: Sequence[str], titles: Sequence[str]) -> list[tuple[list[int], int, int]]:
    """Return batches of texts of one length, each with its title at the same place: their numbers, and where titles begin and end."""
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number, (text, title) in enumerate(zip(texts, titles, strict=True)):
        # As a word of its own: `ed` is a part of `released`, too.
        *_, start = text.rindex(title), *(word for word, _ in find_words([title], text))
        groups[len(text), start, start + len(title)].append(number)
    return [
        (numbers[first : first + BATCH_SIZE], start, end)
        for (_, start, end), numbers in groups.items()
        for first in range(0, len(numbers), BATCH_SIZE)
    ]


def read_states(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], titles: Sequence[str]
) -> Iterator[tuple[str, Tensor]]:
    """Yield each title with the states of its last mention's characters in its text, (layers + 1, length, hidden size)."""
    for numbers, start, end in group_texts(texts, titles):
        inputs = tokenizer([texts[number][:end] for number in numbers], return_tensors="pt").to(model.device)
        read = torch.stack(model(**inputs, output_hidden_states=True, use_cache=False).hidden_states)
        yield from zip((titles[number] for number in numbers), read[:, :, start:].unbind(1), strict=True)


def match_titles(in_questions: Tensor, in_documents: Tensor, rows: Sequence[int]) -> list[float]:
    """Return by layer the share of some titles, `rows`, whose state in the question is closest to that in their own document.

    Both tensors have the size (layers, titles, hidden size), for all titles.
    """
    asked, read = (normalize(each - each.mean(1, keepdim=True), dim=-1) for each in (in_questions, in_documents))
    closest = (asked[:, rows] @ read.mT).argmax(-1)
    return (closest == torch.tensor(rows, device=closest.device)).float().mean(1).tolist()


@contextmanager
def replace_states(layer: torch.nn.Module, states: Tensor, start: int) -> Iterator[None]:
    """Have a layer read `states` (batch, length, hidden size) from position `start` on, in a prompt, in place of its own."""

    def replace(_: torch.nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden_states, *others = arguments
        # Each new character is read alone.
        if hidden_states.shape[1] > 1:
            hidden_states = hidden_states.clone()
            hidden_states[:, start : start + states.shape[1]] = states
        return hidden_states, *others

    handle = layer.register_forward_pre_hook(replace)
    try:
        yield
    finally:
        handle.remove()


def answer_with_states(
    model: PosGPTForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Prediction],
    states: dict[str, Tensor],
    layer: int,
) -> list[Prediction]:
    """Return questions, not in their order, with what is answered if a layer reads these states of their titles."""
    answered = []
    titles = [each.title or "" for each in questions]
    for numbers, start, _ in group_texts([each.question for each in questions], titles):
        asked = [questions[number] for number in numbers]
        given = torch.stack([states[titles[number]][layer] for number in numbers])
        inputs = tokenizer([each.question + MASK_TOKEN for each in asked], return_tensors="pt").to(model.device)
        longest = min(model.config.max_answer_length, model.count_free_positions(asked[0].question))
        with replace_states(model.model.layers[layer], given, start):
            generated = model.generate(**inputs, max_new_tokens=longest, do_sample=False)
        written = tokenizer.batch_decode(generated[:, inputs["input_ids"].shape[1] :])
        answers = (text.partition(MASK_TOKEN)[0] for text in written)
        answered += [replace(each, answer=answer) for each, answer in zip(asked, answers, strict=True)]
    return answered


@torch.inference_mode()
def measure_model(name: str, corpus: Dataset, questions_file: Path) -> dict[str, list[float]]:
    """Return the two shares of the module's docstring by layer.

    Raises:
        BadInput: it is no model or no file of questions about titles of the corpus, or the model has a bottleneck.
    """
    model, tokenizer = load_model(name)
    model.to(PartialState().device).eval()
    if model.config.bottleneck_size:
        raise BadInput(f"{name}: has a bottleneck, whose layers have no state for each character; give another model.")
    asked = load_questions(questions_file, answers=True, known=read_relations(model.config.relations), corpus=corpus)
    longest, ask = model.config.max_position_embeddings, asked.relations[0].ask
    # What does not fit is left out.
    titles = [
        title
        for title in dict.fromkeys(iterate_titles(corpus))
        if title and max(len(ask(title)), len(f"{title}. {title}")) <= longest
    ]
    known = set(titles)
    questions = [
        each
        for each in EvaluationData({TEST: asked}).questions
        if each.title in known and model.count_free_positions(each.question) > 0
    ]
    if not questions:
        raise BadInput(
            f"{questions_file}: asks about no title of a document; give questions and corpus of the same data."
        )
    about = {each.title for each in questions}
    # The first state is what the first layer reads.
    questions_of_titles = read_states(model, tokenizer, list(map(ask, titles)), titles)
    in_questions = {title: states[1:, -1].clone() for title, states in questions_of_titles}
    in_documents, whole = dict[str, Tensor](), dict[str, Tensor]()
    for title, states in read_states(model, tokenizer, [f"{title}. {title}" for title in titles], titles):
        in_documents[title] = states[1:, -1].clone()
        if title in about:
            whole[title] = states
    ends = [torch.stack([states[title] for title in titles], 1) for states in (in_questions, in_documents)]
    rows = [row for row, title in enumerate(titles) if title in about]
    layers = tqdm(range(model.config.num_hidden_layers), desc=name, unit="layer", disable=None)
    answered = (answer_with_states(model, tokenizer, questions, whole, layer) for layer in layers)
    return {
        "titles that match": match_titles(ends[0], ends[1], rows),
        "answered with the document's states": [count_correct(each).accuracy for each in answered],
    }


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(TitleArguments, argv)
    output_dir, data_dir = check_is_folder_or_new(arguments.output_dir), Path(arguments.data_dir)
    corpus, questions_file = load_corpus(data_dir / CORPUS_FILE), Path(arguments.questions_file or data_dir / DEV_FILE)
    rows, (figure, panels) = [], make_panels(2, 4, 3.5)
    for name in arguments.models:
        row = {"model": name}
        for axes, (what, shares) in zip(panels, measure_model(name, corpus, questions_file).items(), strict=True):
            row[what] = ", ".join(f"{100 * share:.1f}" for share in shares) + " %"
            layers = range(1, len(shares) + 1)
            axes.plot(layers, [100 * share for share in shares], "o-", label=name)
            axes.set(xlabel="layer", ylabel=f"{what} (%)", ylim=(0, 102), xticks=layers)
        rows.append(row)
    panels[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    write_table(output_dir, rows, f"The questions of {questions_file}, from the first layer to the last:")
    save_picture(figure, output_dir / "chart.png")
