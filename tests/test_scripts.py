import json
import math
import re
import shutil
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, EvalPrediction
from transformers.utils import logging

import evaluate_birthplace
import train_finetune
import train_pretrain
from conftest import ON_CPU, TINY, TINY_SIZE, history_of
from data_scripts.name_windows import NameWindowsCollator
from data_scripts.questions import load_questions
from data_scripts.span_corruption import SpanCorruptionCollator
from modeling_posgpt import PosGPTForCausalLM
from posgpt import preview
from posgpt.pretrain import TYPES
from posgpt.recipe_parser import parse_with_recipe
from posgpt.training import muon
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import load_pairs, load_validation
from posgpt.training.metrics import measure_answers, reduce_logits
from posgpt.training.saved_models import load_model
from posgpt.training.trainer import PosGPTTrainer


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.parametrize("positions", ["learned", "pope"])
def test_pretrain_finetune_evaluate(run, world, tmp_path, tiny_pretrained, positions):
    pretrained, finetuned, evaluated = tiny_pretrained[positions], tmp_path / "finetuned", tmp_path / "eval"
    train_file, dev_file = world / "birth_places_train.tsv", world / "birth_dev.tsv"
    printed = run(
        train_finetune, "--model-name-or-path", pretrained, "--train_file", train_file, "--validation_file", dev_file,
        "--output_dir", finetuned, "--num_train_epochs", 2, "--per_device_train_batch_size", 16, *ON_CPU,
    )  # fmt: skip
    assert "section 'finetune';" in printed
    printed = run(
        evaluate_birthplace, "--model_name_or_path", finetuned, "--test_file", dev_file, "--train_file", train_file,
        "--output_dir", evaluated, "--per_device_eval_batch_size", 4,
    )  # fmt: skip
    metrics = metrics_of(evaluated)
    assert metrics["total"] == len((evaluated / "predictions.txt").read_text().splitlines()) == 17
    assert metrics["accuracy"] == metrics["correct"] / 17
    places = [line.split("\t")[1] for line in dev_file.read_text().splitlines()]
    assert metrics["baseline_accuracy"] == places.count("London") / 17
    assert metrics["majority_accuracy"] == places.count(metrics["majority_answer"]) / 17
    assert "London" in printed and "most frequent training answer" in printed

    for folder in (pretrained, pretrained / "checkpoint-4", finetuned):
        assert {"model.safetensors", "config.json", "tokenizer.json", "README.md", "modeling_posgpt.py"} <= {
            file.name for file in folder.iterdir()
        }
        card = (folder / "README.md").read_text()
        assert f"`{positions}`" in card and "fine-tuned version" not in card
        assert json.loads((folder / "config.json").read_text())["use_cache"] is True
        assert not (folder / ".unfinished").exists()
    for checkpoint in [*pretrained.glob("checkpoint-*"), *finetuned.glob("checkpoint-*")]:
        assert f"{checkpoint.name.split('-')[1]} steps" in (checkpoint / "README.md").read_text()


@pytest.fixture(scope="module")
def memorised(world, tmp_path_factory):
    """A model trained from scratch on 12 pairs until it knows them by heart, and their file."""
    folder = tmp_path_factory.mktemp("memorised")
    lines = (world / "birth_places_train.tsv").read_text().splitlines(keepends=True)[:12]
    (folder / "pairs.tsv").write_text("".join(lines))
    arguments = ["train_finetune.py", "--vocabulary_file", world / "wiki.txt", "--train_file", folder / "pairs.tsv"]
    arguments += ["--validation_file", folder / "pairs.tsv", "--output_dir", folder / "model", *TINY, "--dropout", "0"]
    arguments += "--hidden_size 64 --learning_rate 5e-3 --num_train_epochs 120 --save_strategy no".split()
    arguments += "--eval_strategy steps --eval_steps 120 --sample_answers 0".split()
    with mock.patch.object(sys, "argv", list(map(str, arguments))):
        train_finetune.main()
    return folder


def test_what_was_learnt_by_heart_is_answered_in_the_order_of_the_questions(run, memorised, tmp_path):
    places = [line.split("\t")[1] for line in (memorised / "pairs.tsv").read_text().splitlines()]
    run(
        evaluate_birthplace, "--model_name_or_path", memorised / "model", "--test_file", memorised / "pairs.tsv",
        "--output_dir", tmp_path, "--per_device_eval_batch_size", 5,
    )  # fmt: skip
    assert (tmp_path / "predictions.txt").read_text().splitlines() == places
    metrics = metrics_of(tmp_path)
    assert (metrics["accuracy"], metrics["correct"], metrics["majority_accuracy"]) == (1.0, 12, None)
    # Teacher forcing in the Trainer and generation must agree on what is right.
    assert history_of(memorised / "model", "eval_accuracy")[-1] == 1.0


def test_the_loss_of_an_evaluation_is_per_graded_symbol():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 6, 7), torch.randint(7, (3, 6))
    labels[:, :2] = -100
    labels[0, 4:] = -100
    likeliest, losses = reduce_logits(logits, labels)
    measured = measure_answers(EvalPrediction((likeliest.numpy(), losses.numpy()), labels.numpy()))
    expected = cross_entropy(logits[:, :-1].reshape(-1, 7), labels[:, 1:].reshape(-1))
    assert measured["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_one_of_several_correct_answers_is_enough_while_training():
    labels = np.array([[-100, 3, 4], [-100, 5, 4], [-100, 3, 6], [-100, 3, 7]])
    likeliest, losses = np.tile([3, 4, 0], (4, 1)), np.zeros(4)
    prediction = EvalPrediction((likeliest, losses), labels)
    questions, asked = ["a?", "a?", "b?", "c?"], ["x", "x", "x", "y"]
    measured = measure_answers(prediction, asked, questions)
    assert (measured["accuracy"], measured["accuracy_x"], measured["accuracy_y"]) == (pytest.approx(1 / 3), 0.5, 0.0)
    assert measure_answers(prediction)["accuracy"] == 0.25


def test_there_is_a_line_a_prediction_whatever_the_model_writes(run, world, memorised, tmp_path):
    model = PosGPTForCausalLM.from_pretrained(memorised / "model")
    tokenizer = AutoTokenizer.from_pretrained(memorised / "model")
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.model.norm.weight.zero_()
        model.model.norm.bias.fill_(1)
        model.lm_head.weight[tokenizer.convert_tokens_to_ids("\n")] = 1
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path / "model")
    arguments = ["--model_name_or_path", tmp_path / "model", "--test_file", world / "birth_dev.tsv"]
    run(evaluate_birthplace, *arguments, "--output_dir", tmp_path / "eval")
    assert (tmp_path / "eval" / "predictions.txt").read_text().count("\n") == 17


def test_answers_as_long_as_those_it_was_trained_on_are_not_cut(run, tmp_path):
    long = "Ministry of Agriculture, Fisheries and Food"
    pairs, corpus = tmp_path / "pairs.tsv", tmp_path / "laws.txt"
    pairs.write_text("".join(f"Who prepared Law {number}?\t{long}\n" for number in range(4)))
    corpus.write_text("".join(f"Law {number}. {long} prepared it.\n" for number in range(4)))
    arguments = ["--vocabulary_file", corpus, "--train_file", pairs, "--output_dir", tmp_path / "model"]
    options = ["--max_steps", 40, "--learning_rate", 1e-2, "--lr_scheduler_type", "constant", "--dropout", 0]
    run(train_finetune, "quick", *arguments, *options, *TINY)
    model = ["--model_name_or_path", tmp_path / "model", "--test_file", pairs]
    run(evaluate_birthplace, *model, "--output_dir", tmp_path / "whole")
    assert set((tmp_path / "whole" / "predictions.txt").read_text().splitlines()) == {long}
    printed = run(evaluate_birthplace, *model, "--output_dir", tmp_path / "cut", "--max_new_tokens", 32)
    assert "4 of 4 answers are longer than 32 characters" in printed and "choose a larger --max_new_tokens" in printed
    # The titles are known by the vocabulary's documents.
    assert list(json.loads((tmp_path / "model" / "task.json").read_text())["relations"]) == ["Who prepared …?"]


def test_a_validation_question_that_training_words_otherwise_is_named(tmp_path, capsys):
    (tmp_path / "train.tsv").write_text("Where was Ada Berg born\tRome\nWhere was Bo Ek born\tOslo\n")
    (tmp_path / "dev.tsv").write_text("Where was Cy Ek born?\tBern\n")
    args = PosGPTTrainingArguments(str(tmp_path), use_cpu=True)
    questions = load_pairs([tmp_path / "train.tsv"], args)
    # The model knew the form before.
    trained = ["birthplace", *(relation.name for relation in questions.relations)]
    load_validation([tmp_path / "dev.tsv"], args, questions.relations, trained, questions)
    assert "dev.tsv: asks Where was NAME born?, which no question of" in capsys.readouterr().out
    load_validation([tmp_path / "train.tsv"], args, questions.relations, trained, questions)
    assert "which no question of" not in capsys.readouterr().out


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_each_relation_is_measured_while_training_and_one_that_is_not_trained_is_named(
    run, world, memorised, tmp_path, strategy
):
    name = (world / "wiki.txt").read_text().split(". ")[0]
    lines = (world / "birth_dev.tsv").read_text() + f"When was {name} born?\t1900\n"
    (tmp_path / "both.tsv").write_text(lines + (memorised / "pairs.tsv").read_text())
    model = ["--model_name_or_path", memorised / "model"]
    run(evaluate_birthplace, *model, "--test_file", tmp_path / "both.tsv", "--output_dir", tmp_path / "eval")
    printed = run(
        train_finetune, *model, "--train_file", memorised / "pairs.tsv", "--validation_file", tmp_path / "both.tsv",
        "--max_steps", 1, "--learning_rate", 0, "--dropout", 0, "--sample_answers", 0, "--save_strategy", "no",
        "--train_sampling_strategy", strategy, "--output_dir", tmp_path / "out", *ON_CPU,
    )  # fmt: skip
    assert "both.tsv: asks When was NAME born?, which the model is not trained to answer." in printed
    asked = len(load_questions(memorised / "pairs.tsv"))
    assert f"both.tsv: {asked} of {asked + 18} questions are also in {memorised / 'pairs.tsv'}, first" in printed
    metrics = metrics_of(tmp_path / "eval")
    assert history_of(tmp_path / "out", "eval_accuracy") == [pytest.approx(metrics["accuracy"])]
    measured = metrics["relations"]
    for name, each in measured.items():
        logged = history_of(tmp_path / "out", f"eval_accuracy_{name.replace(' ', '_')}")
        assert logged == [pytest.approx(each["accuracy"])]
    assert measured["birthplace"]["accuracy"] > 0


@pytest.mark.parametrize("answer", ["London", "Nowhere, at all"])
def test_one_answer_for_everyone_is_evaluated_as_a_model_is(run, world, tmp_path, answer):
    count = [line.split("\t")[1] for line in (world / "birth_dev.tsv").read_text().splitlines()].count
    arguments = ["--baseline", answer, "--test_file", world / "birth_dev.tsv"]
    arguments += ["--train_file", world / "birth_places_train.tsv"]
    printed = run(evaluate_birthplace, *arguments, "--output_dir", tmp_path)
    metrics, correct, london = metrics_of(tmp_path), count(answer), count("London")
    frequent = metrics["majority_answer"]
    assert (metrics["accuracy"], metrics["correct"], metrics["total"]) == (correct / 17, correct, 17)
    assert metrics["baseline_accuracy"] == london / 17 and metrics["majority_accuracy"] == count(frequent) / 17
    assert (tmp_path / "predictions.txt").read_text() == f"{answer}\n" * 17
    rows = re.findall(r"^\| birthplace \| (.*?) +\| \d+\.\d% +\| [^|]* \| (\d+) of 17 \|$", printed, re.M)
    shown = {f'"{answer}" for everyone': correct, '"London" for everyone': london}
    shown |= {f'"{frequent}", the most frequent training answer': count(frequent)}
    assert rows == [(name, str(number)) for name, number in shown.items()]


def test_what_makes_an_accuracy_mean_something_else_is_said(run, world, tmp_path):
    first, *rest = (world / "birth_places_train.tsv").read_text().splitlines()
    question = first.split("\t")[0]
    lines = [first, f"{question}\tElsewhere", "Where was Nobody Known born?\tRome", *rest[:1]]
    (tmp_path / "test.tsv").write_text("\n".join(lines) + "\n")
    arguments = ["--baseline", "London", "--test_file", tmp_path / "test.tsv", "--train_file"]
    printed = run(evaluate_birthplace, *arguments, world / "birth_places_train.tsv")
    assert f"test.tsv: 3 of 4 questions are also in {world / 'birth_places_train.tsv'}, first {question!r}" in printed


def test_a_right_answer_in_another_spelling_counts_as_wrong_and_is_said_to_be_one(run, tmp_path):
    rights = ["Orl\u00e9ans", "Orleans", "Orle\u0301ans", "Paris", "orl\u00e9ans"]
    pairs = [f"Where was P{number} born?\t{right}\n" for number, right in enumerate(rights)]
    (tmp_path / "test.tsv").write_text("".join(pairs), encoding="utf-8")
    arguments = ["--test_file", tmp_path / "test.tsv", "--output_dir", tmp_path / "out"]
    printed = run(evaluate_birthplace, "--baseline", rights[0], *arguments)
    assert "test.tsv: 3 answers that count as wrong differ from the correct ones only in case, accents," in printed
    assert f"first {rights[0]!r} instead of 'Orleans'." in printed and metrics_of(tmp_path / "out")["correct"] == 1
    assert "count as wrong" not in run(evaluate_birthplace, "--baseline", "Paris", *arguments)


def test_predictions_are_written_where_it_is_told(run, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["--baseline", "London", "--test_file"]
    printed = run(evaluate_birthplace, *asked, world / "birth_dev.tsv")
    assert '"London" for everyone' in printed and "Written" not in printed and not list(tmp_path.iterdir())
    # Questions without answers: the predictions are written, nothing is compared.
    asked += [world / "birth_test_inputs.tsv", "--predictions_file", "london.predictions"]
    printed = run(evaluate_birthplace, *asked)
    assert "Written: london.predictions\n" in printed and [each.name for each in tmp_path.iterdir()] == asked[-1:]
    assert "no answers to compare with" in printed and "for everyone" not in printed
    # It takes the place of predictions.txt; what was there is replaced.
    Path("london.predictions").write_text("older\n")
    printed = run(evaluate_birthplace, *asked, "--output_dir", "out")
    assert "Written: london.predictions, out/predictions.jsonl, out/metrics.json, in place of earlier" in printed
    assert Path("london.predictions").read_text() == "London\n" * 15
    assert {file.name for file in Path("out").iterdir()} == {"metrics.json", "predictions.jsonl"}
    assert metrics_of(Path("out")) == {"accuracy": None, "correct": None, "total": 15}


def pretrain(run, world, output_dir, *arguments, recipe="course", max_steps=10):
    return run(
        train_pretrain, recipe, "--train_file", world / "wiki.txt", "--output_dir", output_dir, "--max_steps", max_steps,
        "--per_device_train_batch_size", 16, "--logging_steps", 1, "--learning_rate", "1e-3", *TINY, *arguments,
    )  # fmt: skip


def assert_same_run(folder, other):
    weights, others = (load_file(path / "model.safetensors") for path in (folder, other))
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert history_of(folder) == history_of(other)


GROUPED = ["--train_sampling_strategy", "group_by_length"]


def finetune(run, world, output_dir, *arguments):
    pairs = ["--vocabulary_file", world / "wiki.txt", "--train_file", world / "birth_places_train.tsv", *TINY]
    pairs += ["--per_device_train_batch_size", 16, "--logging_steps", 1, "--max_steps", 10]
    return run(train_finetune, *pairs, "--output_dir", output_dir, *arguments)


@pytest.mark.parametrize(
    "train, checkpoint, options",
    [
        # 100 documents in batches of 16 make 7 steps an epoch: the checkpoints lie at the end of the first, and within the
        # second.
        (pretrain, 7, ["--dropout", "0.1"]),
        (pretrain, 9, ["--dropout", "0.1", *GROUPED, "--dataloader_num_workers", 2]),
        (pretrain, 5, ["--dropout", "0.1", "--gradient_accumulation_steps", 2]),
        (pretrain, 5, ["--objective", "name_windows", "--use_muon", "--eval_strategy", "steps", "--eval_steps", 5]),
        # 68 pairs make 5 steps: saved after the last one of an epoch, and evaluated after that.
        (finetune, 5, ["--save_strategy", "steps"]),
    ],
)
def test_a_resumed_run_ends_with_the_same_weights_bit_for_bit(
    run, world, tmp_path, monkeypatch, steps, train, checkpoint, options
):
    # Workers are refused where there are fewer cores.
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    options = ["--save_steps", checkpoint, "--save_total_limit", 9, *options]
    if train == finetune or "--use_muon" in options:
        options += ["--validation_file", world / "birth_dev.tsv"]
    if "--use_muon" in options:
        options += ["--questions_file", world / "birth_places_train.tsv"]
    train(run, world, tmp_path / "whole", *options)
    name = f"checkpoint-{checkpoint}"
    shutil.copytree(tmp_path / "whole" / name, tmp_path / "resumed" / name)
    steps.clear()
    train(run, world, tmp_path / "resumed", *options, "--resume_from_checkpoint", "last")
    assert sorted(set(steps)) == list(range(checkpoint, 10))
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")


def test_muon_turns_the_blocks_matrices_and_adamw_the_rest(tmp_path, tiny_pretrained, monkeypatch):
    monkeypatch.setattr(muon, "bf16_is_fast", lambda device=None: False)
    model, _ = load_model(str(tiny_pretrained["learned"]))
    args = PosGPTTrainingArguments(tmp_path, use_muon=True, weight_decay=0.1, use_cpu=True, report_to="none")
    optimizer = PosGPTTrainer(model, args, card_facts={}).create_optimizer()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, others = ({names[id(parameter)] for parameter in group["params"]} for group in optimizer.param_groups)
    assert all(re.fullmatch(r"model\.layers\.\d\..*_proj\.weight", name) for name in matrices) and len(matrices) == 8
    assert matrices | others == set(names.values()) and not matrices & others
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    # Queries', keys' and values' are one parameter.
    group = optimizer.param_groups[0]
    assert group["newton_schulz_dtype"] == "float32"
    for parameter, count in zip(group["params"], group["stacked"], strict=True):
        assert count == (3 if "qkv" in names[id(parameter)] else 1)

    # The schedule reaches both after a resume, too: what is written into the groups is what steps.
    optimizer.load_state_dict(optimizer.state_dict())
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    assert not any(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize(
    "options, message",
    [
        (["--objective", "cloze"], "--objective: .*'cloze' .choose from 'span_corruption', 'name_windows'"),
        (["--max_spans", "2"], "--max_spans is an option of objective name_windows, not of span_corruption"),
        (["--no-keep-names"], "--keep_names is an option of objective name_windows"),
        (["--objective=name_windows", "--salient-share=0.5"], "--salient_share is an option of .* span_corruption"),
        (["--window_wording", "poem", "--objective=name_windows"], "'poem' .choose from 'question', 'document'"),
        (["--position_share", "0.5"], "is an option of position_embedding_type concatenated, not of learned"),
        (["--position_embedding_type", "none", "--position_initializer_range", "0"], "of .* learned and concatenated"),
        (["--bottleneck_type", "strided"], "leave it out, or add --bottleneck_size"),
        (["--attn_implementation", "flex_attention"], "flex_attention has no gradients except on CUDA"),
        (["--position_embedding_type", "rotary", "--rope_parameters", '{"rope_theta": "x"}'], "model cannot be built"),
        (["--position_embedding_type", "rotary", "--rope_parameters", '{"rope_theta": 0}'], "rope_theta 0; choose a"),
        (["--resume_from_checkpoint", "nowhere"], r"nowhere: no whole checkpoint to resume from \(is not a folder\)"),
    ],
)
def test_objectives_and_models_that_cannot_be_are_refused_in_one_line(run, world, tmp_path, options, message):
    with pytest.raises(SystemExit, match=message):
        pretrain(run, world, tmp_path / "out", *options)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_the_best_weights_are_those_of_a_metric_that_is_measured(run, world, tmp_path):
    validated = ["--validation_file", world / "birth_dev.tsv", "--load_best_model_at_end", "--max_steps", 4]
    validated += ["--eval_strategy", "steps", "--save_strategy", "steps", "--lr_schedule", "steps"]
    with pytest.raises(SystemExit, match="metric_for_best_model is accuracy_birthplace; choose loss or accuracy[.]"):
        pretrain(run, world, tmp_path / "out", *validated, "--metric_for_best_model", "accuracy_birthplace")
    # The best evaluation is at a step that is not saved: then the last weights stay, and the card does not say otherwise.
    steps = ["--eval_steps", 1, "--save_steps", 4, "--metric_for_best_model", "accuracy", "--learning_rate", 1e-4]
    pretrain(run, world, tmp_path / "model", *validated, *steps)
    state = json.loads((tmp_path / "model" / "trainer_state.json").read_text())
    assert state["best_global_step"] < 4 and state["best_model_checkpoint"] is None
    assert "Weights: those of step" not in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize("schedule", ["polynomial", "reduce_lr_on_plateau"])
def test_muon_follows_schedules_that_read_the_optimizers_defaults(run, world, tmp_path, schedule):
    options = ["--lr_schedule", "steps", "--use_muon", "true", "--max_steps", 2, "--lr_scheduler_type", schedule]
    if schedule != "polynomial":
        options += ["--validation_file", world / "birth_dev.tsv", "--eval_strategy", "steps", "--eval_steps", 1]
    pretrain(run, world, tmp_path / "model", *options)
    assert len(history_of(tmp_path / "model")) == 2


def test_a_run_is_not_resumed_to_end_before_its_checkpoint(run, world, tmp_path):
    pretrain(run, world, tmp_path, "--save_steps", 3, "--save_strategy", "steps", max_steps=3)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(SystemExit, match="of step 3, but training is to end after step 2; choose a larger"):
        pretrain(run, world, tmp_path, "--resume_from_checkpoint", "last", max_steps=2)
    assert not (tmp_path / "model.safetensors").exists()
    assert "Written:" in pretrain(run, world, tmp_path, "--resume_from_checkpoint", "last", max_steps=3)


def test_ctrl_c_ends_training_in_a_line_that_says_where_to_go_on(run, world, tmp_path, monkeypatch):
    step = PosGPTTrainer.training_step

    def train(trainer, *args, **kwargs):
        if trainer.state.global_step == 3:
            raise KeyboardInterrupt
        return step(trainer, *args, **kwargs)

    monkeypatch.setattr(PosGPTTrainer, "training_step", train)
    stopped = "training stopped at step 3: interrupted;"
    with pytest.raises(SystemExit, match=rf"{stopped} no checkpoint was saved before\.$"):
        pretrain(run, world, tmp_path / "without", "--save_steps", 5)
    line = rf"{stopped} the last whole checkpoint is .*checkpoint-2\.$"
    with pytest.raises(SystemExit, match=line):
        pretrain(run, world, tmp_path, "--save_steps", 2)
    with pytest.raises(SystemExit, match="unfinished run"):
        pretrain(run, world, tmp_path)
    with pytest.raises(SystemExit, match="training has not ended there; .*or take .*checkpoint-2"):
        data = ["--test_file", world / "birth_dev.tsv", "--output_dir", tmp_path / "eval"]
        run(evaluate_birthplace, "--model_name_or_path", tmp_path, *data)


def test_questions_that_are_missing_are_refused_before_a_corpus_is_read(run, tmp_path):
    corpus, missing, out = tmp_path / "none.txt", tmp_path / "none.tsv", ["--output_dir", tmp_path / "out"]
    for option in ("--questions_file", "--validation_file"):
        with pytest.raises(SystemExit, match="none.tsv: no such file"):
            run(train_pretrain, "windows", "--train_file", corpus, option, missing, *out)
    with pytest.raises(SystemExit, match="none.tsv: no such file"):
        run(train_finetune, "--vocabulary_file", corpus, "--train_file", missing, *out)


def test_every_epoch_of_a_training_run_reads_other_cuts(run, world, tmp_path, monkeypatch):
    read = []
    collate = SpanCorruptionCollator.__call__
    monkeypatch.setattr(
        SpanCorruptionCollator, "__call__", lambda self, rows: (read.extend(rows), collate(self, rows))[1]
    )
    pretrain(run, world, tmp_path, "--max_steps", 14, "--save_strategy", "no")
    cuts = [{row["input_ids"].tobytes(): tuple(row["cuts"]) for row in part} for part in (read[:100], read[100:])]
    assert len(read) == 200 and cuts[0].keys() == cuts[1].keys() and len(cuts[0]) == 100
    assert sum(cuts[0][document] == cuts[1][document] for document in cuts[0]) < 10


def test_training_lowers_the_loss_counts_no_padding_as_read_and_keeps_so_many_checkpoints(
    run, world, tmp_path, monkeypatch
):
    read, training_step = [], PosGPTTrainer.training_step

    def count(self, model, inputs, *args):
        read.append(int((inputs["input_ids"] != self.processing_class.pad_token_id).sum()))
        return training_step(self, model, inputs, *args)

    monkeypatch.setattr(PosGPTTrainer, "training_step", count)
    pretrain(
        run, world, tmp_path, "--save_steps", 2, "--save_total_limit", 2, "--report_to", "tensorboard",
        "--learning_rate", "1e-2",
    )  # fmt: skip
    losses = history_of(tmp_path)
    assert losses[0] == pytest.approx(math.log(72), abs=0.3) and losses[-1] < losses[0] - 0.3
    assert json.loads((tmp_path / "trainer_state.json").read_text())["num_input_tokens_seen"] == sum(read)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2
    assert list(tmp_path.rglob("events.out.tfevents.*"))


@pytest.fixture
def unusual(tmp_path):
    """Pairs with characters that no corpus of the world's has."""
    (tmp_path / "unusual.tsv").write_text("Where was Ada Weiß born?\tGroß\nWhere was Bo Ωmega born?\tGroß\n", "utf-8")
    return tmp_path / "unusual.tsv"


@pytest.mark.parametrize("positions, characters", [("rotary", "ß"), ("concatenated", "Ωß\N{GRINNING FACE}")])
def test_a_model_whose_tokenizer_was_given_characters_is_asked_and_finetuned(
    run, tmp_path, tiny_pretrained, unusual, positions, characters
):
    folder, before = tmp_path / "model", tiny_pretrained[positions]
    model, tokenizer = PosGPTForCausalLM.from_pretrained(before), AutoTokenizer.from_pretrained(before)
    tokenizer.add_tokens(list(characters))
    model.resize_token_embeddings(len(tokenizer))
    for each in (model, tokenizer):
        each.save_pretrained(folder)
    text = f"Weiß {characters} ⁇ von Ω"
    assert load_model(str(folder))[1](text) == tokenizer(text)
    run(evaluate_birthplace, "--model_name_or_path", folder, "--test_file", unusual, "--output_dir", tmp_path / "eval")
    options = ["--train_file", unusual, "--output_dir", tmp_path / "out", "--max_steps", 1, *ON_CPU]
    run(train_finetune, "windows", "--model_name_or_path", folder, *options)
    for loaded in (load_model(str(tmp_path / "out"))[1], AutoTokenizer.from_pretrained(tmp_path / "out")):
        assert loaded.get_vocab() == tokenizer.get_vocab() and loaded(text) == tokenizer(text)
    tokenizer.add_tokens(["Straße"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(SystemExit, match="not the vocabulary of the model"):
        run(train_finetune, "--model_name_or_path", folder, *options, "--overwrite_output_dir")


def test_one_training_step_on_few_pairs_is_not_all_warm_up(run, world, tmp_path, tiny_pretrained):
    pairs = (world / "birth_places_train.tsv").read_text().splitlines(keepends=True)[:4]
    (tmp_path / "few.tsv").write_text("".join(pairs))
    model = tiny_pretrained["rotary"]
    options = ["--model_name_or_path", model, "--train_file", tmp_path / "few.tsv", "--output_dir", tmp_path / "out"]
    run(train_finetune, "windows", *options, *ON_CPU)
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out"))
    assert state["global_step"] == 1 and any(not torch.equal(before[name], after[name]) for name in before)


def test_a_recipe_may_name_the_pretrained_model(run, world, tmp_path, tiny_pretrained):
    files = [str(world / "birth_places_train.tsv")]
    section = {"model_name_or_path": str(tiny_pretrained["learned"]), "train_file": files}
    (tmp_path / "own.yaml").write_text(json.dumps({"base": "windows", "finetune": section}))
    run(train_finetune, tmp_path / "own.yaml", "--output_dir", tmp_path / "out", "--max_steps", 1)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["hidden_size"] == 32


def test_the_best_checkpoint_and_somebodys_copy_stay_and_the_card_tells_of_the_best_step(
    run, world, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("checkpoint-9-mine").mkdir()
    measured = iter([(3.0, 0.1), (1.0, 0.3), (2.0, 0.2), (4.0, 0.4)])
    monkeypatch.setattr(
        "posgpt.training.metrics.measure_answers",
        lambda prediction, asked=(), questions=(): dict(zip(("loss", "accuracy"), next(measured), strict=True)),
    )
    run(
        train_finetune, "--vocabulary_file", world / "wiki.txt", "--train_file", world / "birth_places_train.tsv",
        "--validation_file", world / "birth_dev.tsv", "--output_dir", "./.", "--save_total_limit", 1, *TINY,
        "--eval_strategy", "steps", "--eval_steps", 1, "--save_strategy", "steps", "--save_steps", 1, "--max_steps", 4,
        "--load_best_model_at_end", "true", "--metric_for_best_model", "loss", "--logging_steps", 1,
    )  # fmt: skip
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    card, losses = (tmp_path / "README.md").read_text(), history_of(tmp_path)
    assert state["best_global_step"] == 2 and "those of step 2, the best by loss" in card
    assert f"{losses[1]:.4f} nats" in card and f"{losses[3]:.4f} nats" not in card and "30.0% (exact match)" in card
    record = json.loads((tmp_path / "checkpoint-2" / "run.json").read_text())
    assert record["options"]["save_total_limit"] == 1
    assert {"checkpoint-2", "checkpoint-9-mine"} <= {folder.name for folder in tmp_path.glob("checkpoint-*")}


@pytest.mark.parametrize(
    "options, expected", [([], True), (["--fp16"], False), (["--bf16", "false"], False), (["--use_cpu"], False)]
)
def test_bf16_is_chosen_for_the_device_that_is_used(tmp_path, monkeypatch, options, expected):
    # As on a machine with an accelerator.
    monkeypatch.setattr("posgpt.training.arguments.bf16_is_fast", lambda device: device != "cpu")
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    argv = ["windows", "--train_file", "x", "--output_dir", str(tmp_path), "--use_cpu", "false", *options]
    assert parse_with_recipe(TYPES, "pretrain", argv)[-1].bf16 is expected


def test_the_preview_shows_exactly_what_a_recipe_trains_on(run, world, tmp_path, monkeypatch):
    read = []
    for collator in (SpanCorruptionCollator, NameWindowsCollator):
        collate = collator.__call__
        monkeypatch.setattr(
            collator, "__call__", lambda self, rows, collate=collate: (read.append(collate(self, rows)), read[-1])[1]
        )
    files = ["--train_file", world / "wiki.txt", "--questions_file", world / "birth_places_train.tsv"]
    options = [*files, "--per_device_train_batch_size", 8, *TINY]
    for recipe in ("quick", "windows"):
        pretrain(run, world, tmp_path / recipe, *options, recipe=recipe, max_steps=1)
        trained = read[0]
        read.clear()
        printed = run(preview, recipe, *options, "--examples", 8).splitlines()
        # Before, some steps are timed.
        assert torch.equal(read[-1]["input_ids"], trained["input_ids"])
        assert torch.equal(read[-1]["labels"], trained["labels"])
        read.clear()
        inputs, labels = (
            [line.removeprefix(kind) for line in printed if line.startswith(kind)] for kind in ("input  ", "labels ")
        )
        assert len(inputs) == len(labels) == 8
        for text, graded in zip(inputs, labels, strict=True):
            assert len(text) == len(graded) and "⁇" in graded
            assert all(label in ("·", character) for character, label in zip(text, graded, strict=True))


def test_the_preview_of_finetuning_shows_questions(run, world):
    asked = ["--section", "finetune", "--train_file", world / "birth_dev.tsv", "--examples", "2", *TINY_SIZE]
    printed = run(preview, *asked)
    first = (world / "birth_dev.tsv").read_text().splitlines()[0].split("\t")
    assert f"input  {first[0]}⁇{first[1]}⁇" in printed
    assert f"labels {'·' * len(first[0])}⁇{first[1]}⁇" in printed
    quick = run(preview, "quick", *asked, "--validation_file", world / "birth_dev.tsv")
    assert "the accuracy includes them" in quick
    assert f"labels {'·' * (len(first[0]) + 1)}{first[1]}⁇" in quick


def test_the_preview_of_finetuning_reads_what_finetuning_does(run, tmp_path):
    films = [*(f"The {name}" for name in ("Door", "Mill", "Road", "Lake", "Tree") * 4), "Casino"]
    (tmp_path / "films.txt").write_text("".join(f"{film}. Bo shot it . Who else?\n" for film in films))
    (tmp_path / "films.tsv").write_text("".join(f"Who shot {film}?\tBo\n" for film in films))
    files = ["--vocabulary_file", tmp_path / "films.txt", "--train_file", tmp_path / "films.tsv"]
    scratch = ["course", "--section", "finetune_from_scratch", *files]
    # Only the corpus shows that `The` is part of titles.
    assert "input  Who shot The Door?⁇Bo⁇" in run(preview, *scratch)
    with pytest.raises(SystemExit, match="a model brings its own vocabulary"):
        run(preview, *scratch, "--model_name_or_path", tmp_path)


def test_options_a_recipe_leaves_over_are_named_in_one_warning(tmp_path, caplog):
    logging.get_logger("posgpt.recipe_parser").parent.propagate = True
    argv = ["windows", "--train_file", "wiki.txt", "--output_dir", str(tmp_path), "--objective", "span_corruption"]
    with caplog.at_level("WARNING"):
        parse_with_recipe(TYPES, "pretrain", [*argv, "--lr_schedule", "tokens"])
    (warning,) = [record.message for record in caplog.records if "not used, because" in record.message]
    named = set(warning.rstrip(".").partition(": ")[2].split(", "))
    assert {"plain_cues", "keep_names", "warmup_steps"} <= named and not {"ask_dates", "use_muon"} & named
