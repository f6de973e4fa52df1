import dataclasses
import math
from functools import cached_property
from typing import Annotated, Literal, get_args, get_origin

import pytest
import torch

from conftest import ROOT
from data_scripts.errors import BadInput
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import OBJECTIVES
from data_scripts.options import Range, list_ranges, parse_options
from data_scripts.synthetic_world import World
from modeling_posgpt import build_tokenizer
from posgpt import finetune
from posgpt.pretrain import TYPES, PretrainingArguments
from posgpt.recipe_parser import parse_with_recipe
from posgpt.training.architecture import ArchitectureArguments, build_model
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import choose_data_seed


@dataclasses.dataclass
class Options:
    share: Annotated[float, Range(0, 1)] = 0.5
    count: Annotated[int | None, Range(1)] = None
    kind: Literal["one", "other"] = "one"
    shares: Annotated[list[float], Range(0, 1)] = dataclasses.field(default_factory=list)
    names: dict | str | None = None
    texts: list[str] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize(
    "argv, options, message",
    [
        (["--share", "1.01"], {"share": 1.01}, "share is 1.01; choose a number from 0 to 1"),
        (["--share", "nan"], {"share": math.nan}, "share is nan; choose a number from 0 to 1"),
        (["--count", "0"], {"count": 0}, "count is 0; choose at least 1"),
        (["--shares", "0.5", "2"], {"shares": [0.5, 2]}, "shares is 2.0; choose a number from 0 to 1"),
        (["--kind", "third"], {"kind": "third"}, "--kind: invalid choice: 'third'"),
        (["--shars", "1"], {"shars": 1}, "unknown option --shars; did you mean --shares?"),
        (["--xyz=1"], {"xyz": None}, "unknown option --xyz; --help"),
        (["--count", "1", "more"], {"count": [1]}, r"unknown option more; --help|--count: .*'\[1\]'"),
        (["--count", "many"], {"count": "many"}, "count.*'many'"),
    ],
)
def test_what_a_field_does_not_allow_is_refused_in_one_line(argv, options, message):
    for given in (([argv], {}), ([], options)):
        with pytest.raises(BadInput, match=message) as refused:
            parse_options(Options, *given[0], **given[1])
        assert "\n" not in str(refused.value)


def test_what_a_field_allows_passes():
    parsed = Options(1.0, 1, shares=[0.5], names={"a": [1]})
    assert parse_options(Options, share=1, count=1, shares=[0.5], names={"a": [1]}, kind=None) == parsed
    parsed.names = '{"a": [1]}'
    assert parse_options(Options, "--share 1 --count=1 --shares .5 --names".split() + ['{"a": [1]}']) == parsed
    assert parse_options(Options, shares=[], count=None, share=0.5) == Options()
    assert parse_options(Options, texts=["-M-", "b"]).texts == ["-M-", "b"]


def parse_pretraining(tmp_path, recipe, *argv):
    (tmp_path / "own.yaml").write_text(recipe)
    argv = [str(tmp_path / "own.yaml"), "--output_dir", str(tmp_path / "out"), *argv]
    return parse_with_recipe(TYPES, "pretrain", argv)


@pytest.mark.parametrize("number", ["1e-5", "1e6", "-2.5E+3", ".5e2", "1.e1"])
def test_a_number_in_a_recipes_dictionary_is_one_as_in_yaml_1_2(tmp_path, number):
    recipe = "base: windows\npretrain: {train_file: wiki.txt, learning_rate: 1e-3, lr_scheduler_kwargs: {min_lr: %s},"
    recipe += " position_embedding_type: rotary, rope_parameters: {rope_theta: %s, names: [1e5x, e5, '1e5']}}"
    *_, architecture, training_args = parse_pretraining(tmp_path, recipe % (number, number))
    rope = {"rope_theta": float(number), "names": ["1e5x", "e5", "1e5"]}
    assert (training_args.lr_scheduler_kwargs, architecture.rope_parameters) == ({"min_lr": float(number)}, rope)
    assert training_args.learning_rate == 1e-3


def test_null_in_a_derived_recipe_unsets_an_option(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "base: windows\npretrain: {train_file: wiki.txt, questions_file: [q.tsv], validation_file: dev.tsv, hidden_size: 32,"
        " rope_parameters: {}, save_total_limit: 3, report_to: tensorboard, use_cpu: true, learning_rate: 1, first_shares: [1]}"
    )
    unset = ["questions_file", "validation_file", "hidden_size", "rope_parameters", "save_total_limit", "report_to"]
    unset += ["learning_rate"]
    recipe = f"base: base.yaml\npretrain: {{first_shares: [], {', '.join(f'{name}: null' for name in unset)}}}"
    data_args, _, architecture, training_args = parse_pretraining(tmp_path, recipe)
    values = vars(data_args) | vars(architecture) | vars(training_args)
    assert values["train_file"] == ["wiki.txt"] and values["report_to"] == [] and values["eval_strategy"] == "no"
    assert all(values[name] is None for name in unset[:-2]) and values["first_shares"] == []
    assert values["learning_rate"] == PosGPTTrainingArguments.learning_rate
    for missing in ("null", "[]"):
        with pytest.raises(BadInput, match="arguments are required: --train_file"):
            parse_pretraining(tmp_path, f"base: base.yaml\npretrain: {{train_file: {missing}}}")
    with pytest.raises(BadInput, match="--output_dir is empty; give a value, or leave it out"):
        parse_pretraining(tmp_path, "base: base.yaml", "--output_dir", "")


def test_a_process_without_a_launcher_takes_one_gpu_and_the_rows_that_were_asked_for(tmp_path):
    class OnEightGpus(PosGPTTrainingArguments):
        @cached_property
        def _setup_devices(self):
            device = super()._setup_devices
            self._n_gpu = 8
            return device

    args = OnEightGpus(str(tmp_path), total_train_batch_size=32, gradient_accumulation_steps=4, use_cpu=True)
    assert args.n_gpu == 1, "or Trainer would use DataParallel"
    assert (args.per_device_train_batch_size, args.train_batch_size, args.rows_per_step) == (8, 8, 32)


@pytest.mark.parametrize("given, seed", [({}, 3), ({"data_seed": 5}, 5), ({"data_seed": 0}, 0)])
def test_what_is_read_follows_from_the_data_seed_or_else_the_seed(tmp_path, given, seed):
    assert choose_data_seed(PosGPTTrainingArguments(str(tmp_path), seed=3, use_cpu=True, **given)) == seed


def test_the_weights_that_training_begins_with_follow_from_the_seed(tmp_path):
    architecture = ArchitectureArguments(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    tokenizer = build_tokenizer(["abc"], 32)

    def build(seed: int) -> torch.Tensor:
        args = PosGPTTrainingArguments(str(tmp_path), seed=seed, use_cpu=True)
        return build_model(architecture, tokenizer, args).lm_head.weight

    assert torch.equal(build(1), build(1)) and not torch.equal(build(1), build(2))


def test_no_option_of_an_objective_has_the_name_of_another_option():
    """Recipes that have it, such as `dropout`, would be told that their objective does not use it, and would lose it."""
    others = {
        field.name
        for each in (ArchitectureArguments, PretrainingArguments, PosGPTTrainingArguments)
        for field in dataclasses.fields(each)
    }
    for objective in OBJECTIVES.values():
        assert others.isdisjoint(field.name for field in dataclasses.fields(objective)), objective.name


def test_help_shows_ranges_and_each_option_under_one_name(capsys):
    with pytest.raises(SystemExit):
        parse_with_recipe(TYPES, "pretrain", ["windows", "--help", "all"])
    help_text = capsys.readouterr().out
    words = " ".join(help_text.split())
    assert "a number from 0 to 1 (default: 0.3)" in words and "; required --" in words and "rope_type" in words
    assert " %% " not in words and "options of the objective span_corruption: --salient_share" in words
    names = [line.split()[0] for line in help_text.splitlines() if line.startswith("  --")]
    assert len(names) == len(set(names)) and "-" not in "".join(n[2:] for n in names)
    # The architecture's options come in a section of their own, after the objective's.
    sections = [names.index(name) for name in ("--train_file", "--max_spans", "--hidden_size", "--output_dir")]
    assert sections == sorted(sections) and "\narchitecture of a new model:\n" in help_text
    # `quickstart` finetunes from scratch alone.
    with pytest.raises(SystemExit) as stop:
        parse_with_recipe(finetune.TYPES, "finetune", ["quickstart", "--help"])
    assert stop.value.code == 0 and "(default: 15" in " ".join(capsys.readouterr().out.split())
    for argv in (["windows", "--help"], ["--help", "windows"], ["-h", "windows", "--train_file", "wiki.txt"]):
        with pytest.raises(SystemExit):
            parse_with_recipe(TYPES, "pretrain", argv)
        assert "(default: 0.002)" in " ".join(capsys.readouterr().out.split())


def build_table(group: str, options_of: dict[str, tuple[type, set]]) -> str:
    """Return a table of options as the docs have it; `group` is the head of a column of those that own them, if any."""
    rows = [f"| option |{group} values | default | what it does |", "|---|---|---|---|" + "---|" * bool(group)]
    for owner, (kind, others) in options_of.items():
        ranges = list_ranges(kind)
        for field in dataclasses.fields(kind):
            if field.name not in others:
                default = field.default_factory()[0] if field.default is dataclasses.MISSING else field.default
                default = str(default).lower() if isinstance(default, bool) else "" if default is None else default
                allowed = get_args(field.type) if get_origin(field.type) is Literal else ()
                choices = " or ".join(f"`{choice}`" for choice in field.metadata.get("choices", allowed))
                kinds = {"seed": "a number", "edits_file": "a file"}
                values = choices or ranges.get(field.name) or kinds.get(field.name, "true or false")
                own = f" {owner} |" if group else ""
                rows.append(f"| `--{field.name}` |{own} {values} | {default} | {field.metadata['help']} |")
    return "\n".join(rows)


def test_the_docs_tables_are_those_of_the_code():
    shared = {field.name for field in dataclasses.fields(ObjectiveConfig)}
    objectives = {f"`{name}`": (objective, shared) for name, objective in OBJECTIVES.items()}
    for file, table in (
        ("pretraining.md", build_table(" objective |", {"all": (ObjectiveConfig, set()), **objectives})),
        ("own_text.md", build_table("", {"": (World, set())})),
    ):
        assert table in (ROOT / "docs" / file).read_text(encoding="utf-8"), f"docs/{file} needs:\n{table}"


def test_given_architecture_options_take_the_configurations_names():
    given = ArchitectureArguments(block_size=64, dropout=0.0, rope_parameters='{"rope_type": "default"}')
    assert given.list_config_values() == {
        "max_position_embeddings": 64,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attention_dropout": 0.0,
        "rope_parameters": {"rope_type": "default"},
    }
    with pytest.raises(BadInput, match="rope_parameters is 'wide'; give a JSON object"):
        ArchitectureArguments(rope_parameters="wide")
