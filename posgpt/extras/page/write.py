"""A page without a server: one HTML file that asks one or two PosGPTs in the visitor's own browser.

    posgpt page --model_name_or_path runs/windows --corpus_file wiki.txt --output_dir runs/page

The file holds everything, the models and what runs them included, and its policy forbids it every request.
"""

import json
import math
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tqdm import tqdm

from data_scripts.documents import Columns, check_columns, read_rows
from data_scripts.errors import BadInput, check_installed, reraise_as_bad_input
from data_scripts.files import check_is_new, hash_file, write_folder_atomically
from data_scripts.options import Range, option, parse_options
from data_scripts.titles import find_title
from posgpt.extras.page.view import load_page_models, render_page

MOST_PROPOSED = 200
# What runs the models, and the SHA-256 of the archive that npm downloads.
RUNTIME = "onnxruntime-web@1.30.0"
RUNTIME_HASH = "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71"


@dataclass
class PageArguments(Columns):
    """Which models to put on the page, and where to write it."""

    model_name_or_path: list[str] = option("One PosGPT, or two to compare: folders or names on the hub.")
    corpus_file: str | None = option("The corpus that was read: the page shows what it says of a title.", default=None)
    output_dir: str = option("New folder for the page.", default="runs/page")
    abstain_below: Annotated[float, Range(0, 1)] = option("Below this confidence, it says: I don't know.", default=0.5)


def load_runtime() -> tuple[str, bytes]:
    """Return onnxruntime-web as a script that defines `ort`, and its WebAssembly; raise BadInput if npm does not bring it."""
    with TemporaryDirectory() as folder:
        # On Windows, npm is a file whose name has an ending.
        command = [str(shutil.which("npm")), "pack", RUNTIME, "--prefer-offline"]
        result = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace")
        archive = next(Path(folder).glob("*.tgz"), None)
        if archive is None or hash_file(archive) != RUNTIME_HASH:
            said = " ".join(result.stderr.split())[:300]
            raise BadInput(f"npm pack did not bring {RUNTIME}; it needs the network the first time: {said}")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        dist = Path(folder, "package", "dist")
        module = (dist / "ort.wasm.bundle.min.mjs").read_text(encoding="utf-8")
        binary = (dist / "ort-wasm-simd-threaded.wasm").read_bytes()
    # A page without requests cannot import a module; the last statement of this one exports all that it exports.
    body, _, exported = module.rpartition("export{")
    names = re.sub(r"([\w$]+) as (\w+)", r"\2:\1", exported.partition("}")[0])
    script = f'const ort=(()=>{{"use strict";{body};return{{{names}}}}})();'
    return script.replace("import.meta.url", "document.baseURI").replace("</", "<\\/"), binary


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(PageArguments, argv)
    check_columns(arguments, arguments.corpus_file)
    folder = check_is_new(arguments.output_dir)
    check_installed("page", "onnx", "onnxscript")
    if shutil.which("npm") is None:
        raise BadInput("this needs npm, which is not installed; install Node.js, which has it.")
    content, titles = {}, list[str]()
    if arguments.corpus_file is not None:
        rows = read_rows(arguments.corpus_file, arguments)
        documents = [(title, text, where.removeprefix(f"{arguments.corpus_file}, ")) for where, title, text in rows]
        content["corpus"] = json.dumps(documents, ensure_ascii=False).encode()
        titles = list(dict.fromkeys(filter(None, (find_title(title, text) for title, text, _ in documents))))
        # So many at most, from the whole corpus.
        titles = titles[:: max(1, math.ceil(len(titles) / MOST_PROPOSED))]
    models = load_page_models(arguments.model_name_or_path)
    for name, model, _ in models:
        if model.config.bottleneck_size is not None:
            raise BadInput(f"{name}: the page shows no model with a bottleneck; give another.")
    # What npm may fail at is known before the minutes that exporting may take.
    runtime, content["runtime"] = load_runtime()
    # It needs the libraries of the extra `page`.
    from posgpt.extras.page.export import export_model

    for i, (name, model, _) in enumerate(tqdm(models, desc="Exporting", unit="model")):
        # Not all that encodings compute has a counterpart there.
        with reraise_as_bad_input(f"{name}: ONNX cannot express it", "give a model with other positions.", Exception):
            # Rounded to float16, weights in float32 compress to half.
            content[f"model-{i}"] = export_model(model.half().float()).SerializeToString()
    page = render_page(
        models,
        [runtime, files(__package__).joinpath("model.js").read_text("utf-8")],
        arguments.abstain_below,
        titles,
        content,
        promise="This page holds all that answers: what you type stays in your browser.",
        credits="Run by ONNX Runtime Web (© Microsoft Corporation, MIT licence) in WebAssembly. The page’s policy lets it make no"
        " request.",
    ).encode()
    with write_folder_atomically(folder) as unfinished:
        (unfinished / "index.html").write_bytes(page)
    print(f"Open {folder / 'index.html'} in a browser ({len(page) / 1e6:.1f} MB), or put it on any web server.")
