"""Commands are functions: they take options, return values, and leave the program's command line alone."""

import re
import sys

import pytest
from safetensors.torch import load_file, save_file

import posgpt
from conftest import TINY
from data_scripts.errors import BadInput
from posgpt.pretrain import TYPES
from posgpt.recipe_parser import parse_with_recipe
from test_readme import list_blocks

SMALL = {name.removeprefix("--"): value for name, value in zip(TINY[::2], TINY[1::2], strict=True)}
SMALL |= {"max_steps": 2, "logging_steps": 1, "quiet": True}


@pytest.mark.parametrize("page", ["README.md", "docs/api.md"])
def test_the_examples_of_the_docs_train_ask_and_report(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = next(block for block in list_blocks(page) if "posgpt.pretrain(" in block)
    options = '"quickstart", max_steps=2, logging_steps=1, report_to="none", hidden_size=32,'
    exec(code.replace("num_people=300", "num_people=100").replace('"quickstart",', options), {})
    printed = capsys.readouterr().out
    assert re.search(r"^Where was .* born\? (Answer\(|.*\d%$)", printed, re.M)
    assert "birthplace" in printed and (tmp_path / "runs" / "eval" / "metrics.json").is_file()


def test_pretraining_and_finetuning_return_models_and_print_nothing_when_quiet(world, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["notebook", "--not", "an option"])
    corpus, train, dev = (world / name for name in ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv"))
    folders = [tmp_path / "pretrained", tmp_path / "finetuned"]
    trained = posgpt.pretrain("quick", train_file=corpus, output_dir=folders[0], **SMALL)
    printed = capfd.readouterr()
    assert printed.out == "" and "not used" not in printed.err and "%|" not in printed.err
    options = {name: value for name, value in SMALL.items() if name not in ("block_size", "hidden_size")}
    options = {name: value for name, value in options.items() if not name.startswith("num_")}
    files = {"train_file": train, "validation_file": [str(dev)]}
    finetuned = posgpt.finetune(model_name_or_path=folders[0], output_dir=folders[1], **files, **options)
    printed = capfd.readouterr()
    assert printed.out == "" and "Recipe" not in printed.err and "%|" not in printed.err
    for (model, tokenizer, record), folder in zip((trained, finetuned), folders, strict=True):
        assert model.num_parameters() < 100_000 and len(tokenizer) == model.config.vocab_size
        assert record["max_steps"] == 2 and record["data"] and any("loss" in each for each in record["log_history"])
        assert (folder / "model.safetensors").is_file()
    assert any("eval_accuracy" in each for each in finetuned.record["log_history"])
    # As saved: for answers, not for more training.
    assert not trained.model.training and trained.model.config.use_cache
    in_bf16 = posgpt.pretrain("quick", train_file=corpus, output_dir=tmp_path / "bf16", **SMALL | {"bf16": True})
    assert not {"forward", "_original_forward"} & vars(in_bf16.model).keys(), "without autocast"
    files["model_name_or_path"] = folders[0]
    again = posgpt.finetune(output_dir=folders[1], resume_from_checkpoint="auto", **files, **options)
    assert again.record["log_history"] == finetuned.record["log_history"] and again.record["max_steps"] == 2
    # Weights as torch.compile and DataParallel name them.
    weights = load_file(folders[1] / "model.safetensors")
    save_file({f"_orig_mod.module.{name}": each for name, each in weights.items()}, folders[1] / "model.safetensors")
    question = train.read_text().split("\t")[0]
    answers = posgpt.ask(model_name_or_path=folders[1], questions=question)
    (likeliest, *_), *_ = finetuned.model.list_answers([question], finetuned.tokenizer, 4)
    assert answers.predictions[0].answer == likeliest.text
    with pytest.raises(BadInput, match="unknown option --question; did you mean --questions?"):
        posgpt.ask(model_name_or_path=folders[1], question=question)
    with pytest.raises(BadInput, match="relations is \"{'origin': .*choose a text"):
        posgpt.evaluate(
            test_file=train, model_name_or_path=folders[1], relations={"origin": {"wordings": ["{title}?"]}}
        )
    with pytest.raises(BadInput, match="relations is .*own.yml.*choose a text"):
        posgpt.evaluate(test_file=train, model_name_or_path=folders[1], relations=["own.yml"])
    with pytest.raises(BadInput, match="arguments are required: --test_file"):
        posgpt.evaluate(baseline="London")
    with pytest.raises(BadInput, match="arguments are required: --test_file"):
        posgpt.evaluate()


def test_a_config_is_what_the_command_line_gives_and_is_refused_in_one_line(tmp_path):
    options = {"train_file": "wiki.txt", "output_dir": tmp_path, "hidden_size": 32, "corpus_weights": [1]}
    config = parse_with_recipe(TYPES, "pretrain", default="windows", options=options | {"use_cpu": True})
    line = f"windows --train_file wiki.txt --output_dir {tmp_path} --hidden_size 32 --corpus_weights 1 --use_cpu"
    assert config[:3] == parse_with_recipe(TYPES, "pretrain", line.split())[:3]
    for wrong, message in (
        ({"hiden_size": 3}, "unknown option --hiden_size; did you mean --hidden_size?"),
        ({"max_steps": "many"}, "--max_steps: .*'many'"),
        ({"question_share": 2}, "question_share is 2.0; choose a number from 0 to 1"),
        ({"salient_share": 0.5}, "--salient_share is an option of objective span_corruption"),
        ({"train_file": None}, "arguments are required: --train_file"),
    ):
        with pytest.raises(BadInput, match=message):
            posgpt.pretrain("windows", **options | wrong)
    with pytest.raises(BadInput, match="no such recipe"):
        posgpt.finetune("widows", train_file="pairs.tsv")
    assert not list(tmp_path.iterdir())


def test_every_command_takes_a_command_line_and_leaves_the_programs_own(monkeypatch, tmp_path, capsys):
    from posgpt import cli

    argv = ["posgpt", "world", "--output_dir", str(tmp_path / "world"), "--num_people", "100"]
    monkeypatch.setattr(sys, "argv", list(argv))
    cli.main()
    assert sys.argv == argv and "wiki.txt has" in capsys.readouterr().out
    for command in cli.COMMANDS:
        with pytest.raises(SystemExit, match="^error: unknown option --nonsense; "):
            monkeypatch.setattr(sys, "argv", ["posgpt", command, "--nonsense"])
            cli.main()
