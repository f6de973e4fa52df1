"""The structure of the code: what may import what, and where a wording may stand."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from conftest import ROOT
from data_scripts.relations import RELATIONS

PACKAGES = ["modeling_posgpt", "data_scripts", "posgpt", "studies", "benchmarks"]
SCRIPTS = ["train_pretrain.py", "train_finetune.py", "evaluate_birthplace.py"]
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
FILES += [ROOT / script for script in SCRIPTS]
# Each may import itself and those to its right.
ARROWS = {
    "scripts": ["posgpt", "data_scripts", "modeling_posgpt"],
    "studies": ["posgpt", "data_scripts", "modeling_posgpt"],
    "benchmarks": ["studies", "posgpt", "data_scripts", "modeling_posgpt"],
    "posgpt": ["data_scripts", "modeling_posgpt"],
    "data_scripts": ["modeling_posgpt"],
    "modeling_posgpt": [],
}


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def find_imports(tree: ast.AST) -> set[str]:
    """The top-level names of all absolute imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("file", FILES, ids=name)
def test_arrows_point_one_way(file):
    package = file.relative_to(ROOT).parts[0]
    package = "scripts" if package in SCRIPTS else package
    own = find_imports(ast.parse(file.read_text(encoding="utf-8"))) & {*ARROWS, *(Path(name).stem for name in SCRIPTS)}
    assert own <= {package, *ARROWS[package]}


def list_modules(tree: ast.AST) -> list[str]:
    """The modules of all absolute imports, and what is imported from each, as if these were modules, too."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    found = [f"{node.module}.{alias.name}" for node in imports for alias in node.names]
    return found + [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]


def test_nothing_imports_the_extras_but_themselves():
    for file in FILES:
        modules = list_modules(ast.parse(file.read_text(encoding="utf-8")))
        assert "extras" in file.parts or not any(f"{module}.".startswith("posgpt.extras.") for module in modules), file


def test_the_model_package_is_one_flat_folder_with_imports_of_its_own_files_alone():
    folder = ROOT / "modeling_posgpt"
    assert {file.name for file in folder.iterdir() if file.is_dir()} <= {"__pycache__"}
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                # transformers copies the files that imports of this form name, and no others.
                assert node.level == 1 and node.module and "." not in node.module


def find_docstrings(tree: ast.AST) -> set[int]:
    """The ids of the nodes that are docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented)]
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


def test_a_wording_stands_in_its_relation_alone():
    wordings = [wording for relation in RELATIONS.values() for wording in relation.wordings]
    halves = {half.strip() for wording in wordings for half in wording.split("{title}")} - {"?"}
    found = []
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        docstrings = find_docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found += [(name(file), half) for half in halves if half in node.value]
    expected = [half for half in halves for wording in wordings if half in wording]
    assert sorted(found) == [("data_scripts/relations.py", half) for half in sorted(expected)]


def test_no_template_or_recipe_holds_a_wording():
    for pattern in ("*.jinja", "*.yaml"):
        for file in (file for package in PACKAGES for file in (ROOT / package).rglob(pattern)):
            # A world's words are data.
            if ROOT / "data_scripts" / "world" in file.parents:
                continue
            assert not re.search(r"Where was|born\?", file.read_text(encoding="utf-8")), file


def test_pre_commit_and_the_workflow_run_the_checks_of_make_lint():
    lint = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    assert hooks == re.findall(r"^\t\$\(BIN\)/(.+)$", lint, re.M)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert {"run": "make lint"} in workflow["jobs"]["lint"]["steps"]
