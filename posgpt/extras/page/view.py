"""The page on which models are asked: `posgpt page` writes it whole, `posgpt demo` serves it and computes what it shows."""

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.relations import read_relations
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, PosGPTForCausalLM
from posgpt.templates import load_template
from posgpt.training.saved_models import check_is_causal, load_model


class PageModel(NamedTuple):
    """A model of the page, and what the page calls it."""

    name: str
    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase


def load_page_models(names: Iterable[str]) -> list[PageModel]:
    """Load models, each once, with attention that can be shown. Raises BadInput as `load_model` does, or for what cannot be asked."""
    paths = {name: Path(name).resolve() for name in names}
    if len(paths) > 2:
        raise BadInput("model_name_or_path names too many models; give two at most.")
    # The page calls them by no more of their paths than tells them apart: the rest names its author's folders.
    alike = os.path.commonprefix([path.parts[::-1] for path in paths.values()]) if len(paths) > 1 else ()
    depth = len(alike) + 1
    models = [
        PageModel("/".join(path.parts[-depth:]), *load_model(name, attn_implementation="eager"))
        for name, path in paths.items()
    ]
    for name, model, _ in models:
        check_is_causal(name, model)
    return models


def _hash_source(source: str) -> str:
    """Return a script or style sheet's hash as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def render_page(
    models: Sequence[PageModel],
    scripts: Sequence[str],
    abstain_below: float,
    titles: Sequence[str] = (),
    content: Mapping[str, bytes] | None = None,
    **texts: str,
) -> str:
    """Return the page as HTML. Its policy allows its own scripts and styles, and requests to where it is from: to none in a file.

    Args:
        scripts: Code that defines `load` and `askModels` for the page's own.
        abstain_below: The confidence below which the page answers: I don't know.
        titles: What it proposes to ask about.
        content: What it holds besides, by the id of the element.
        texts: `promise` and `credits`, above and below everything.
    """
    source = files(__package__)
    scripts = [*scripts, *(source.joinpath(name).read_text("utf-8") for name in ("questions.js", "page.js"))]
    style = source.joinpath("page.css").read_text("utf-8")
    settings = {
        "models": [
            {
                "name": name,
                "size": model.num_parameters(),
                "positions": model.config.position_embedding_type,
                "maxPositions": model.config.max_position_embeddings,
                "maxAnswerLength": model.config.max_answer_length,
                "layers": model.config.num_hidden_layers,
                "heads": model.config.num_attention_heads,
                "vocabulary": tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))),
            }
            for name, model, tokenizer in models
        ],
        "relations": [
            {"wordings": relation.wordings, "form": relation.form}
            for relation in read_relations(models[0].model.config.relations)
        ],
        "abstainBelow": abstain_below,
        "titles": titles,
        "mask": MASK_TOKEN,
        "unknown": PAD_TOKEN,
    }
    # `<` could end the element that the settings are in.
    return load_template(str(__package__), "page.html.jinja").render(
        policy=f"default-src 'none'; script-src {' '.join(map(_hash_source, scripts))} 'wasm-unsafe-eval';"
        f" style-src {_hash_source(style)}; img-src data:; connect-src {'none' if content else 'self'!r};"
        " base-uri 'none'; form-action 'none'",
        settings=json.dumps(settings).replace("<", "\\u003c"),
        models=settings["models"],
        scripts=scripts,
        style=style,
        packed={id: base64.b64encode(gzip.compress(held, mtime=0)).decode() for id, held in (content or {}).items()},
        **texts,
    )
