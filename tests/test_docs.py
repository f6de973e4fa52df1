"""What the documentation points to is there: pages, headings, pictures, files, commands, modules and recipes."""

import pydoc
import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from conftest import ROOT
from posgpt import cli
from posgpt.recipe_parser import list_recipes

DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
CODE = ("modeling_posgpt", "data_scripts", "posgpt", "studies", "benchmarks", "tests")
TEXTS = ("code_inline", "text")


def parse(document: Path) -> list[Token]:
    """The blocks and the inline parts of a document, in its order."""
    blocks = MarkdownIt("commonmark").enable("table").parse(document.read_text(encoding="utf-8"))
    return [token for block in blocks for token in (block, *(block.children or ()))]


def list_anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and the site name them."""
    tokens = parse(document)
    headings = [after for token, after in zip(tokens, tokens[1:], strict=False) if token.type == "heading_open"]
    texts = ["".join(part.content for part in heading.children if part.type in TEXTS) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


def find_broken_links(document: Path) -> list[str]:
    """The links and pictures of a document that lead nowhere, and those that lead from a page out of the site."""
    tokens = parse(document)
    links = [token.attrGet("href") or token.attrGet("src") for token in tokens if token.type in ("link_open", "image")]
    html = " ".join(token.content for token in tokens if token.type in ("html_inline", "html_block"))
    broken = []
    for link in (*links, *re.findall(r'(?:href|src|srcset)="([^"]+)"', html)):
        scheme, _, path, _, anchor = urlsplit(str(link))
        target = (document.parent / unquote(path)).resolve() if path else document
        is_there = target.exists() and (document.parent != DOCS or target.is_relative_to(DOCS))
        if is_there and anchor:
            is_there = anchor in list_anchors(target)
        if not scheme and not is_there:
            broken.append(str(link))
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_leads_to_a_page_a_heading_or_a_picture(document):
    assert find_broken_links(document) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "page.md").write_text("# One `two`: three\n\n```\n# no heading\n```\n")
    (tmp_path / "picture.png").touch()
    document = tmp_path / "document.md"
    document.write_text("""
# Here

[page](page.md), [heading](page.md#one-two-three), [here](#here), [site](https://example.org/x), ![picture](picture.png), `[code](code.md)`

[page](gone.md), [heading](page.md#no-heading), [here](#gone), ![picture](gone.png)

<img src="gone.svg">
""")
    assert find_broken_links(document) == ["gone.md", "page.md#no-heading", "#gone", "gone.png", "gone.svg"]


# That page names what is gone.
@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if each.name != "migration.md"], ids=lambda document: document.name
)
def test_every_file_command_module_and_recipe_that_is_named_is_there(document):
    text = document.read_text(encoding="utf-8")
    for path in re.findall(r"[\w./-]+\.(?:py|yaml|md|png|cff)\b", text):
        assert "runs/" in path or any((folder / path).exists() for folder in (ROOT, DOCS, DOCS / "results")), path
    assert set(re.findall(r"(?:^|`)posgpt ([a-z][a-z-]*)", text, re.M)) <= set(cli.COMMANDS)
    assert all(map(find_spec, re.findall(r"\bpython -m ([\w.]+)", text)))
    trainings = r"(?:train_pretrain\.py|train_finetune\.py|posgpt pretrain|posgpt finetune|posgpt preview)"
    assert set(re.findall(rf"{trainings} ([a-z]\w*)", text)) <= set(list_recipes())


def test_the_navigation_lists_every_page():
    # Zensical itself builds pages that it does not list, and lists pages that it does not have.
    listed = re.findall(r'"(\w+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_every_page_that_the_code_names_is_there():
    files = [file for folder in CODE for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".yaml")]
    named = re.findall(r"\bdocs/\w+\.md\b", "\n".join(file.read_text(encoding="utf-8") for file in files))
    assert [page for page in named if not (ROOT / page).exists()] == []


def test_the_api_pages_objects_are_in_the_code():
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.M)
    assert names and [name for name in names if pydoc.locate(name) is None] == []
