"""A page without a server: one HTML file that asks one or two PosGPTs in the visitor's own browser.

    posgpt page --model_name_or_path runs/windows --corpus_file wiki.txt --output_dir runs/page

The file holds everything, the models and what runs them included, and its policy forbids it every request.
"""

import base64
import filecmp
import gzip
import hashlib
import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from data_scripts.documents import ColumnArguments, read_rows
from data_scripts.errors import BadInput, check_installed, exit_on_bad_input
from data_scripts.files import check_is_new, write_folder_atomically
from data_scripts.options import Range, option, parse_options
from data_scripts.relations import read_relations
from data_scripts.titles import find_title
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, PosGPTForCausalLM
from posgpt.templates import load_template
from posgpt.training.checkpoints import WEIGHTS_FILE, find_damage, list_checkpoints
from posgpt.training.saved_models import find_model_file, load_model

MOST_BYTES = 35_000_000
# How many questions the answers of 8-bit weights are compared on, and how many titles the page proposes.
COMPARED, PROPOSED = 100, 200
SCRIPTS = ("bundle.js", "answers.js", "page.js")


@dataclass
class PageArguments(ColumnArguments):
    """Which models to put on the page, and where to write it."""

    model_name_or_path: list[str] = option("One PosGPT, or two to compare: folders or names on the hub.")
    corpus_file: str | None = option(
        "The corpus that the models have read: the page shows what it says about a title.", default=None
    )
    checkpoints_dir: str | None = option(
        "A training's folder; a slider goes through its checkpoints, up to the one model that is named.", default=None
    )
    output_dir: str = option("New folder for the page.", default="runs/page")
    weights: Literal["int8", "float32"] = option(
        "The weights' numbers: int8 is a third of the size, and faster; float32 answers as the model itself.",
        default="int8",
    )
    abstain_below: Annotated[float, Range(0, 1)] = option(
        "The confidence below which the answer is: I don't know.", default=0.5
    )


@dataclass
class PageModel:
    """A model of the page, its checkpoints before it; of each the ONNX file, by what the page calls it."""

    name: str
    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    versions: dict[str, bytes] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return what the page has to know of the model."""
        config = self.model.config
        vocabulary = self.tokenizer.get_vocab()
        return {
            "name": self.name,
            "positions": config.position_embedding_type,
            "maxPositions": config.max_position_embeddings,
            "maxAnswerLength": config.max_answer_length,
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "vocabulary": sorted(vocabulary, key=vocabulary.__getitem__),
            "versions": list(self.versions),
        }


def load_page_model(name_or_path: str) -> PageModel:
    """Load a model for the page.

    Raises:
        BadInput: there is no such model, or it is not one that writes answers character by character.
    """
    model, tokenizer = load_model(name_or_path, attn_implementation="eager")
    if not model.config.is_causal or model.config.bottleneck_size is not None:
        raise BadInput(
            f"{name_or_path}: the page has no use for a model with a bottleneck, or one that is not causal; give another."
        )
    return PageModel(name_or_path, model.eval(), tokenizer)


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return what the page calls models: their folders' names, and as many of the folders above as tell them apart."""
    parts = [Path(name).resolve().parts for name in names]
    longest = max(map(len, parts))
    # Not more of the path than that: it would show the names of its author's folders.
    shortened = (["/".join(own[-depth:]) for own in parts] for depth in range(1, longest + 1))
    return next((short for short in shortened if len(set(short)) == len(parts)), list(names))


def list_versions(arguments: PageArguments) -> list[tuple[str, str, str]]:
    """Return what is exported: of each version the model it belongs to, what the page calls it, and where it is.

    Raises:
        BadInput: there are more than two models, or checkpoints beside two of them, or none that is whole.
    """
    models = list(dict.fromkeys(arguments.model_name_or_path))
    if len(models) > 2 or (arguments.checkpoints_dir and len(models) > 1):
        raise BadInput("model_name_or_path names too many models; give two at most, and one with --checkpoints_dir.")
    versions = []
    if arguments.checkpoints_dir:
        checkpoints = list_checkpoints(Path(arguments.checkpoints_dir))[::-1]
        if not checkpoints:
            raise BadInput(
                f"{arguments.checkpoints_dir}: has no checkpoints; give the folder of a training with some."
            )
        end = find_model_file(models[0], WEIGHTS_FILE)
        for checkpoint in checkpoints:
            if damage := find_damage(checkpoint):
                raise BadInput(f"{checkpoint}: {damage}; remove it, or copy it again.")
            # A training's last checkpoint is often the finished model, or with --load_best_model_at_end an earlier one.
            weights = checkpoint / WEIGHTS_FILE
            if weights.is_file() and filecmp.cmp(weights, end, shallow=False):
                break
            versions.append((models[0], f"step {checkpoint.name.rpartition('-')[2]}", str(checkpoint)))
    return [*versions, *((model, "the end", model) for model in models)]


def load_models(versions: Sequence[tuple[str, str, str]]) -> dict[str, PageModel]:
    """Load the models that versions belong to, by their names; see `list_versions`.

    Raises:
        BadInput: as `load_page_model` does.
    """
    models = {name: load_page_model(name) for name in dict.fromkeys(name for name, *_ in versions)}
    for page_model, short in zip(models.values(), shorten_names(list(models)), strict=True):
        page_model.name = short
    return models


def export_versions(versions: Sequence[tuple[str, str, str]], models: dict[str, PageModel], weights: str) -> None:
    """Load and export every version, into its model.

    Raises:
        BadInput: as `load_page_model` does, or a checkpoint has other characters than its model.
    """
    # The libraries of the extra `page`.
    from posgpt.page.export import export_model, quantize

    for name, label, path in tqdm(versions, desc="Exporting", unit="model"):
        page_model = models[name]
        version = page_model if path == name else load_page_model(path)
        if version.tokenizer.get_vocab() != page_model.tokenizer.get_vocab():
            raise BadInput(f"{path}: has other characters than {name}; give the folder of that model's own training.")
        exported = export_model(version.model)
        if weights == "int8":
            exported = quantize(exported, version.model.config.hidden_size)
        page_model.versions[label] = exported.SerializeToString()


def compare_answers(page_model: PageModel, titles: Sequence[str]) -> str:
    """Say in one line to how many questions the exported model gives the model's own answer."""
    from posgpt.page.export import answer

    relations = read_relations(page_model.model.config.relations)
    questions = [relations[number % len(relations)].ask(title) for number, title in enumerate(titles)]
    questions = [question for question in questions if page_model.model.count_free_positions(question) > 0]
    own = [given.text for given in page_model.model.answer(questions, page_model.tokenizer)]
    *_, exported = page_model.versions.values()
    longest = page_model.model.config.max_answer_length
    same = sum(map(str.__eq__, own, answer(exported, page_model.tokenizer, questions, longest)))
    return f"{page_model.name}: on the page, {same} of {len(questions)} questions get the model's own answer."


def find_npm() -> str:
    """Return the path of npm.

    Raises:
        BadInput: it is not installed.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise BadInput("this needs npm, which is not installed; install Node.js, which has it.")
    return npm


def bundle_runtime() -> tuple[str, bytes]:
    """Return onnxruntime-web as one script that defines `ort`, and its WebAssembly.

    Raises:
        BadInput: npm is not installed, or fails.
    """
    npm = find_npm()
    with TemporaryDirectory() as folder, as_file(files("posgpt.page")) as source:
        for name in ("package.json", "package-lock.json", "runtime.js"):
            shutil.copy(source / name, folder)
        for command in (["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], ["run", "bundle"]):
            result = subprocess.run(
                [npm, *command], cwd=folder, capture_output=True, encoding="utf-8", errors="replace"
            )
            if result.returncode:
                said = " ".join(result.stderr.split())[:300]
                raise BadInput(f"npm {command[0]} failed: {said}; it needs the network the first time.")
        runtime = Path(folder, "node_modules", "onnxruntime-web", "dist", "ort-wasm-simd-threaded.wasm")
        return Path(folder, "bundle.js").read_text(encoding="utf-8"), runtime.read_bytes()


def pack(content: bytes) -> str:
    """Compress bytes and write them as base64, as the page holds them."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def hash_source(source: str) -> str:
    """Return a script or style sheet's hash as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def render_page(
    models: Sequence[PageModel],
    bundled: tuple[str, bytes],
    documents: Sequence[tuple[str | None, str]] | None,
    titles: Sequence[str],
    arguments: PageArguments,
) -> str:
    """Return the page as HTML.

    Args:
        bundled: From `bundle_runtime`.
        documents: The title of each of the corpus's documents, if a table says it, and its text. The page proposes `titles`.
    """
    bundle, runtime = bundled
    source = files("posgpt.page")
    scripts = [bundle if name == "bundle.js" else source.joinpath(name).read_text("utf-8") for name in SCRIPTS]
    style = source.joinpath("page.css").read_text("utf-8")
    packed = {"runtime": pack(runtime)}
    for number, page_model in enumerate(models):
        for version, exported in enumerate(page_model.versions.values()):
            packed[f"model-{number}-{version}"] = pack(exported)
    if documents is not None:
        packed["corpus"] = pack(json.dumps(documents, ensure_ascii=False).encode())
    settings = {
        "models": [page_model.describe() for page_model in models],
        "relations": [
            {"wordings": relation.wordings, "form": relation.form}
            for relation in read_relations(models[0].model.config.relations)
        ],
        "abstainBelow": arguments.abstain_below,
        "titles": titles,
        "mask": MASK_TOKEN,
        "unknown": PAD_TOKEN,
    }
    # `<` could end the element that the settings are in.
    return load_template("posgpt.page", "page.html.jinja").render(
        policy=f"default-src 'none'; script-src {' '.join(map(hash_source, scripts))} 'wasm-unsafe-eval';"
        f" style-src {hash_source(style)}; img-src data:; base-uri 'none'; form-action 'none'",
        settings=json.dumps(settings).replace("<", "\\u003c"),
        arguments=arguments,
        **{"models": models, "scripts": scripts, "style": style, "packed": packed},
    )


def thin_out(titles: list[str], most: int) -> list[str]:
    """Return every title, or every second, third and so on, so that at most `most` are left."""
    return titles[:: max(1, math.ceil(len(titles) / most))]


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(PageArguments, argv)
    folder = check_is_new(arguments.output_dir)
    check_installed("page", "onnx", "onnxscript", "onnxruntime")
    find_npm()
    documents, titles = None, []
    if arguments.corpus_file is not None:
        documents = [(title, text) for _, title, text in read_rows(arguments.corpus_file, arguments.columns)]
        titles = list(dict.fromkeys(filter(None, (find_title(*document) for document in documents))))
    titles = thin_out(titles, PROPOSED)
    versions = list_versions(arguments)
    models = load_models(versions)
    # What npm may fail at is known before the minutes that exporting may take.
    bundled = bundle_runtime()
    export_versions(versions, models, arguments.weights)
    page = render_page(list(models.values()), bundled, documents, titles, arguments).encode()
    if len(page) > MOST_BYTES:
        raise BadInput(
            f"the page would have {len(page) / 1e6:,.0f} MB, and {MOST_BYTES / 1e6:.0f} MB are the most; give fewer"
            " checkpoints or smaller models, or no --corpus_file."
        )
    with write_folder_atomically(folder) as unfinished:
        (unfinished / "index.html").write_bytes(page)
    for page_model in models.values() if titles else ():
        print(compare_answers(page_model, thin_out(titles, COMPARED)))
    print(f"Open {folder / 'index.html'} in a browser ({len(page) / 1e6:.1f} MB), or put it on any web server.")


if __name__ == "__main__":
    main()
