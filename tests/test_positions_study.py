"""`posgpt positions`: the tasks' answers by another method, runs that are kept and resumed, and what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from conftest import ROOT
from data_scripts.errors import BadInput
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt.imports import VARIABLE, import_file
from posgpt.positions import study
from posgpt.positions.report import NOT_LEARNED, describe_ranks, draw_mean_ranks, group_runs, write_report
from posgpt.positions.tasks import (
    CUPS,
    DIGITS,
    END,
    FIRST_SYMBOL,
    LETTERS,
    MAX_SHIFT,
    READ,
    SLOW,
    SWAPS,
    TASKS,
    UNGRADED,
    WRITE,
    Task,
    list_commands,
)
from posgpt.positions.train import Run, build_model, fit
from posgpt.positions.train import test as measure_accuracy
from posgpt.training.architecture import CHOICES


def make_run(name: str, task: Task, encoding: str) -> Run:
    return Run(name, task, encoding, {"position_embedding_type": encoding}, 0)


SMALL = {"rows": 4, "tokens": 64, "layers": 1, "steps": 2}


def draw(name: str, length: int):
    """A batch as lists: the inputs' symbols, and the labels with None where nothing is graded."""
    inputs, labels = TASKS[name].draw(np.random.default_rng(1), 40, length)
    assert inputs.shape == labels.shape and max(inputs.max(), labels.max()) < TASKS[name].symbols
    for row, graded in zip(inputs.tolist(), labels.tolist(), strict=True):
        yield row, [None if label == UNGRADED else label for label in graded]


def draw_answers(name: str, length: int):
    """Prompt and answer of each row; the model reads the answer as far as it goes."""
    for row, labels in draw(name, length):
        prompt, _, read = (row[: row.index(0)], 0, row[row.index(0) + 1 :])
        answer = labels[len(prompt) :]
        assert labels[: len(prompt)] == [None] * len(prompt) and answer[:-1] == read
        yield prompt, answer


@pytest.mark.parametrize(
    "name, solve",
    [
        ("copy", lambda prompt: prompt),
        ("copy_twice", lambda prompt: prompt + prompt),
        ("reverse", lambda prompt: list(reversed(prompt))),
        ("sort", sorted),
        ("odds_first", lambda prompt: [*prompt[0::2], *prompt[1::2]]),
        ("count", lambda prompt: [prompt[0]] * prompt.count(prompt[0])),
    ],
)
def test_letters(name, solve):
    for length in (1, 2, 9):
        for prompt, answer in draw_answers(name, length):
            assert len(prompt) == length and answer == [*solve(prompt), END]


def read_number(digits: list[int]) -> int:
    return int("".join(str(digit - FIRST_SYMBOL) for digit in reversed(digits)))


def test_addition():
    for length in (1, 3, 16):
        for prompt, answer in draw_answers("addition", length):
            first, second = prompt[:length], prompt[length + 1 :]
            assert prompt[length] == END and len(second) == length and len(answer) == length + 1
            assert read_number(answer) == read_number(first) + read_number(second) < 2 * DIGITS**length


def test_index():
    distances = set()
    for row, labels in draw("index", 40):
        letters, asked = row[:40], row[41:]
        assert len(set(letters)) == 40 and row[40] == 0
        for i in range(0, len(asked), 3):
            shift = asked[i + 1] - FIRST_SYMBOL - LETTERS - MAX_SHIFT
            assert (
                labels[41 + i : 44 + i]
                == [None, letters[letters.index(asked[i]) + shift], None][:3][: len(row) - 41 - i]
            )
            distances.add(shift)
    assert {min(distances), max(distances)} == {-MAX_SHIFT, MAX_SHIFT}


def test_recall():
    for row, labels in draw("recall", 16):
        values = dict(zip(row[:32:2], row[1:32:2], strict=True))
        asked = row[33::2]
        assert sorted(asked) == sorted(values) and labels[33::2] == [values[key] for key in asked]
        assert labels[32::2] == [None] * 16


@pytest.mark.parametrize("length, shares", [(64, (0.15, 0.25)), (256, (0.01, 0.03))])
def test_flip_flop(length, shares):
    busy = []
    for row, labels in draw("flip_flop", length):
        written, instructions = None, row[1::2]
        bits = [*row[2::2], labels[-1]]
        for i, (instruction, bit) in enumerate(zip(instructions, bits, strict=True)):
            written = bit if instruction == WRITE else written
            assert labels[2 * i + 1] == (written if instruction == READ else None) and labels[2 * i] is None
            assert instruction != READ or bit == written
        busy.append(sum(each in (READ, WRITE) for each in instructions[1:-1]) / length)
    assert shares[0] < np.mean(busy) < shares[1]


def test_scan():
    """Examples of the paper's figure 1 and of its task file; 20,910 commands in all."""
    by_length = list_commands()
    assert sum(len(prompts) for prompts, _ in by_length.values()) == 20_910 and max(by_length) == 48
    told = {}
    for prompts, answers in by_length.values():
        for prompt, answer in zip(prompts.tolist(), answers.tolist(), strict=True):
            command = tuple(symbol for symbol in prompt if symbol != END)
            told[command] = answer
    assert len(told) == 20_910
    words = sorted("after and around jump left look opposite right run thrice turn twice walk".split())
    actions = {
        "I_JUMP": "JUMP",
        "I_LOOK": "LOOK",
        "I_RUN": "RUN",
        "I_WALK": "WALK",
        "I_TURN_LEFT": "LEFT",
        "I_TURN_RIGHT": "RIGHT",
    }
    numbers = {word: FIRST_SYMBOL + i for i, word in enumerate(sorted([*actions.values(), *words]))}
    for command, does in {
        "jump": "I_JUMP",
        "jump left": "I_TURN_LEFT I_JUMP",
        "jump around right": "I_TURN_RIGHT I_JUMP " * 4,
        "turn left twice": "I_TURN_LEFT I_TURN_LEFT",
        "jump thrice": "I_JUMP I_JUMP I_JUMP",
        "jump opposite left and walk thrice": "I_TURN_LEFT I_TURN_LEFT I_JUMP I_WALK I_WALK I_WALK",
        "jump opposite left after walk around left": "I_TURN_LEFT I_WALK " * 4 + "I_TURN_LEFT I_TURN_LEFT I_JUMP",
    }.items():
        expected = [numbers[actions[action]] for action in does.split()]
        assert told[tuple(numbers[word] for word in command.split())] == expected
    assert all(len(answer) == 33 + 1 for _, answer in draw_answers("scan", 35))


def test_swap():
    for row, labels in draw("swap", 12):
        cups = list("abcde")
        for word, first in zip(row, labels, strict=True):
            a, b = SWAPS[word - FIRST_SYMBOL - CUPS]
            cups[a], cups[b] = cups[b], cups[a]
            assert cups[0] == "abcde"[first - FIRST_SYMBOL]


def test_every_task_fits_its_vocabulary_and_lengths():
    for name, task in TASKS.items():
        low, high = task.trained
        # It is tested within the lengths of training and beyond.
        assert 1 <= low <= high < max(task.tested) and any(low <= each <= high for each in task.tested)
        for length in (low, *task.tested):
            inputs, labels = task.draw_test(length)
            assert inputs.shape == labels.shape and (labels != UNGRADED).any(axis=1).all()
            assert max(inputs.max(), labels.max()) < task.symbols
        assert build_model(make_run(name, task, "learned")).num_parameters() < 1_000_000


def test_a_model_learns_and_is_tested():
    task = replace(TASKS["count"], trained=(1, 3), tested=(2, 3, 12), steps=300, tokens=256, layers=1, rows=32)
    model = build_model(make_run("count", task, "rotary"))
    assert fit(model, task, 0) < 0.05
    figures = measure_accuracy(model, task)
    assert min(figures["exact"][:2]) > 0.95 and figures["exact"][2] < 0.9 and 0.5 < figures["tokens"][2] < 1


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Small tasks, and a function that runs the command on them."""
    monkeypatch.setattr(study, "TASKS", {name: replace(TASKS[name], **SMALL) for name in ("copy", "count")})
    return ["--output_dir", tmp_path / "runs", "--seeds", 2, "--encodings", "rotary", "alibi"]


def read_lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def test_a_study_from_end_to_end_and_resumed(run, small, tmp_path):
    folder = tmp_path / "runs"
    printed = run(study, *small, "--tasks", "copy", "--processes", 1)
    assert "4 runs to come, about 0 minutes." in printed and printed.count(NOT_LEARNED) == 2
    first = read_lines(folder)
    assert {(each["encoding"], each["seed"]) for each in first} == {
        (e, s) for e in ("rotary", "alibi") for s in (0, 1)
    }
    assert all(len(each["exact"]) == 6 and each["recipe"]["steps"] == 2 for each in first)

    # A run that two commands trained at once counts once.
    (folder / "runs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*first, first[0]]))
    asked = study.StudyArguments(tasks=["copy"], encodings=["rotary", "alibi"], seeds=2)
    assert len(study.load_runs(folder / "runs.jsonl", study.plan_runs(asked))) == 4

    # An interrupted command has fewer lines; they are kept.
    (folder / "runs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in first[:3]))
    printed = run(study, *small, "--tasks", "all", "--processes", 1)
    assert "5 runs to come" in printed
    lines = read_lines(folder)
    assert lines[:3] == first[:3] and len(lines) == 8
    (again,) = (each for each in lines[3:] if all(each[key] == first[3][key] for key in ("task", "encoding", "seed")))
    assert {**again, "seconds": 0} == {**first[3], "seconds": 0}
    assert "runs to come" not in run(study, *small, "--tasks", "all")
    table = (folder / "table.md").read_text().splitlines()
    assert len(table) == 6 and {line.count(" | ") for line in table} == {9}
    assert all(
        (folder / name).stat().st_size > 9_000 for name in ("heat_map.png", "curves_exact.png", "curves_tokens.png")
    )


def test_a_changed_file_of_ones_own_encodings_is_noticed_where_they_are_used(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    own = type("Own", (POSITION_EMBEDDINGS["none"],), {"__module__": "mine"})
    monkeypatch.setitem(POSITION_EMBEDDINGS, "own", own)
    monkeypatch.setenv(VARIABLE, str(file))
    recipes = []
    for code in ("one", "two"):
        file.write_text(code)
        recipes.append([make_run("copy", TASKS["copy"], name).recipe for name in ("rotary", "rotary+own")])
    assert recipes[0][0] == recipes[1][0] and recipes[0][1] != recipes[1][1]


def test_a_corrected_task_does_not_keep_its_runs(run, small, tmp_path, monkeypatch):
    run(study, *small, "--tasks", "copy", "--processes", 1)
    before, lines = (tmp_path / "runs" / "runs.jsonl").read_text(), read_lines(tmp_path / "runs")
    monkeypatch.setitem(study.TASKS, "copy", replace(study.TASKS["copy"], draw=TASKS["reverse"].draw))
    with pytest.raises(SystemExit, match="line 1: copy with rotary has drawn .* there and .* here; give another"):
        run(study, *small, "--tasks", "copy", "--processes", 1)
    assert (tmp_path / "runs" / "runs.jsonl").read_text() == before
    # Runs of earlier versions do not say what was drawn.
    for line in lines:
        del line["recipe"]["drawn"]
    (tmp_path / "runs" / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "runs to come" not in run(study, *small, "--tasks", "copy", "--processes", 1)


def draw_noise(rng, rows, length):
    return 2 * [rng.integers(3, size=(rows, 7))]


@pytest.mark.parametrize(
    "draw, message",
    [
        (lambda rng, rows, length: 2 * [rng.integers(4, size=(rows, 7))], "draws 0 to 3, not whole .* its 3 symbols"),
        (lambda rng, rows, length: 2 * [rng.random((rows, 7))], "draws 0.* not whole numbers"),
        (lambda rng, rows, length: [np.zeros((rows, 7)), np.zeros((rows, 6))], r"\(3, 7\) and labels \(3, 6\)"),
        (lambda rng, rows, length: draw_noise(rng, 2, length), r"inputs \(2, 7\) .* not twice \(3, width\)"),
        (lambda rng, rows, length: 2 * [rng.integers(3, size=(rows, rng.integers(9)))], "or another width each time"),
        (lambda rng, rows, length: [draw_noise(rng, rows, 1)[0], np.full((rows, 7), UNGRADED)], "no label that is gr"),
        (lambda rng, rows, length: rng.nothing, "'own' at length 1: .* no attribute 'nothing'; correct"),
        (lambda rng, rows, length: draw_noise(rng, {1: rows, 2: rows}[length], 1), "'own' at length 3: 3; correct"),
        (lambda rng, rows, length: draw_noise(np.random.default_rng(0), rows, 1), "the same from another generator"),
        (lambda rng, rows, length: draw_noise(np.random.default_rng(), rows, 1), "something else from the same gen"),
    ],
)
def test_what_no_model_could_be_trained_on_is_refused(run, monkeypatch, draw, message):
    monkeypatch.setitem(study.TASKS, "own", Task(draw, 3, trained=(1, 2), tested=(1, 3)))
    with pytest.raises(SystemExit, match=f"^error: task [^\n]*{message}[^\n]*$"):
        run(study, "--tasks", "own", "--encodings", "none", "--output_dir", "never")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"tested": (1, 2)}, "longest, 2, and longer ones"),
        ({"trained": 2}, "correct its recipe"),
        ({"steps": 0}, "whole ones above 0"),
        ({"tested": (1.0, 3)}, "whole ones above 0"),
    ],
)
def test_a_recipe_that_no_model_could_be_trained_by_is_refused(fields, message):
    with pytest.raises(BadInput, match=message):
        Task(draw_noise, 3, **{"trained": (1, 2), "tested": (1, 3)} | fields).check("own")


OWN_TASKS = """
from posgpt.positions.tasks import TASKS, Task, copy

def make(number):
    def draw(rng, rows, length):
        inputs, labels = copy(rng, rows, length)
        # As some libraries have them.
        return inputs.astype("int32").tolist(), labels.astype("int32")
    return draw

for number in (1, 2):
    TASKS[f"own_{number}"] = Task(make(number), 66, trained=(3, 4), tested=(4, 5), rows=4, tokens=64, steps=2)
"""


def test_tasks_that_a_function_of_ones_own_makes_are_trained_in_several_processes(tmp_path):
    (tmp_path / "own_tasks.py").write_text(OWN_TASKS)
    (tmp_path / "same_name.py").write_text(OWN_TASKS.replace("own_{number}", "copy"))
    (tmp_path / "no_task.py").write_text("from posgpt.positions.tasks import TASKS, copy\nTASKS['mine'] = copy")
    command = [sys.executable, "-m", "posgpt", "positions", "--encodings", "none", "--output_dir", tmp_path / "runs"]
    command += ["--seeds", "1", "--tasks", "own_1", "own_2", "--processes", "2", "--import", tmp_path / "own_tasks.py"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    assert sorted(run["task"] for run in read_lines(tmp_path / "runs")) == ["own_1", "own_2"]
    for name, message in (("same_name", "'copy' is a task already"), ("no_task", "'mine' in TASKS is no Task")):
        with pytest.raises(BadInput, match=f"{name}.py: {message}"):
            import_file(tmp_path / f"{name}.py")
    assert "mine" not in TASKS and TASKS["copy"].steps > 2


def test_a_folder_that_cannot_be_written_to_is_refused_before_training(run, small, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied", "runs")

    monkeypatch.setattr(study, "TemporaryFile", refuse)
    monkeypatch.setattr(study, "start_workers", lambda *_: pytest.fail("trains"))
    with pytest.raises(SystemExit, match="^error: runs: Permission denied"):
        run(study, *small, "--tasks", "copy", "--processes", 1)


def test_guesses_are_the_last_symbol_again_or_always_the_same():
    # All but the first and the last symbol of a count repeat; of letters to be copied, only the end is always the same.
    assert TASKS["count"].guesses == pytest.approx([(n - 1) / (n + 1) for n in TASKS["count"].tested], abs=0.01)
    assert TASKS["copy"].guesses == pytest.approx([1 / (n + 1) for n in TASKS["copy"].tested], abs=0.03)


@pytest.mark.slow
def test_several_processes_train_the_same(run, small, tmp_path):
    kept = []
    for processes in (1, 2):
        run(study, *small, "--tasks", "copy", "--processes", processes, "--output_dir", tmp_path / str(processes))
        lines = [each | {"seconds": 0} for each in read_lines(tmp_path / str(processes))]
        kept.append(sorted(lines, key=json.dumps))
    assert kept[0] == kept[1] and len(kept[0]) == 4


def test_all_may_be_given_beside_what_has_to_be_named():
    assert study.choose("task", ["all", "addition"], TASKS) == [
        *(name for name in TASKS if name not in SLOW),
        "addition",
    ]
    chosen = study.choose("encoding", ["all", "rotary+canon"], CHOICES["position_embedding_type"])
    # `randomized` alone would be none at all.
    expected = [f"{name}+rotary" if name == "randomized" else name for name in POSITION_EMBEDDINGS]
    assert chosen == [*expected, "rotary+canon"]
    assert "randomized" not in CHOICES["position_embedding_type"]


def test_variants_are_encodings_with_settings(run, small, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "TASKS", {"copy": replace(TASKS["copy"], **SMALL | {"layers": 2})})
    (tmp_path / "variants.yaml").write_text(
        """rotary, 25 %: {position_embedding_type: rotary, rope_parameters: {rope_type: default, partial_rotary_factor: 0.25}}
every second layer: {position_embedding_type: [rotary, none]}
"""
    )
    asked = [*small, "--tasks", "copy", "--seeds", 1, "--processes", 1, "--variants_file", tmp_path / "variants.yaml"]
    run(study, *asked)
    losses = {each["encoding"]: each["loss"] for each in read_lines(tmp_path / "runs")}
    assert list(losses) == ["rotary", "alibi", "rotary, 25 %", "every second layer"] and len({*losses.values()}) == 4
    assert "runs to come" not in run(study, *asked)
    alone = [each for each in asked if each not in ("--encodings", "rotary", "alibi")]
    assert "runs to come" not in run(study, *alone)
    # The same under the same name is one run; all encodings and docs/position_variants.yaml have `randomized+rotary`.
    (tmp_path / "variants.yaml").write_text("randomized+rotary: {position_embedding_type: randomized+rotary}")
    run(study, *asked, "--encodings", "randomized+rotary", "--steps", "1", "--output_dir", tmp_path / "once")
    assert [each["encoding"] for each in read_lines(tmp_path / "once")] == ["randomized+rotary"]
    (tmp_path / "variants.yaml").write_text("randomized+rotary: {position_embedding_type: alibi}")
    with pytest.raises(SystemExit, match="'randomized.rotary' is among --encodings, too; give it another name"):
        run(study, *asked, "--encodings", "randomized+rotary")
    (tmp_path / "variants.yaml").write_text("rotary, 25 %: {position_embedding_type: rotary}")
    with pytest.raises(SystemExit, match="copy with rotary, 25 % has rope_parameters"):
        run(study, *asked)


def test_what_is_not_learned_comes_last(tmp_path, capsys):
    def make(encoding: str, within: float, beyond: float, seed: int) -> dict:
        shares = [within] * 2 + [beyond] * 4
        return {"task": "copy", "encoding": encoding, "seed": seed, "exact": shares, "tokens": shares, "seconds": 60}

    runs = [make("none", 0.98, 0.9, seed) for seed in (1, 0)]
    runs += [make("rotary", share, share / 2, seed) for seed, share in enumerate((1.0, 0.996, 0.2))]
    rows = [cell.describe() for cell in group_runs(TASKS, runs)]
    assert [row["encoding"] for row in rows] == ["rotary", "none"]
    assert rows[0]["learned"] == "2 of 3" and rows[1]["learned"] == NOT_LEARNED
    assert rows[0]["exact within"] == "99.6%" and rows[0]["exact beyond, each seed"] == "50.0%, 49.8%, 10.0%"
    write_report(tmp_path, TASKS, runs)
    assert "| copy | rotary   | 99.6%" in capsys.readouterr().out


def test_mean_ranks_are_over_tasks_and_their_intervals_over_seeds():
    def make(task: str, encoding: str, within: float, beyond: list[float]) -> list[dict]:
        own = {"task": task, "encoding": encoding, "seconds": 1}
        tested = len(TASKS[task].tested)
        return [
            {**own, "seed": seed, "exact": [within] * 2 + [share] * (tested - 2), "tokens": [share] * tested}
            for seed, share in enumerate(beyond)
        ]

    runs = make("copy", "alibi", 1.0, [0.5, 0.5, 0.1]) + make("count", "alibi", 1.0, [0.9, 0.9, 0.9])
    runs += make("copy", "none", 1.0, [0.2, 0.2, 0.2]) + make("count", "none", 1.0, [0.9, 0.9, 0.9])
    # Not learned, so last, whatever it does beyond.
    runs += make("copy", "rotary", 0.9, [0.9, 0.9, 0.9]) + make("count", "rotary", 1.0, [0.0, 0.0, 0.0])
    runs += make("copy", "t5", 1.0, [0.9, 0.9, 0.9]) + make("count", "t5", 1.0, [0.9, 0.9])
    ranks = draw_mean_ranks(group_runs(TASKS, runs), draws=2_000)
    # On count, alibi and none share the first rank; t5 lacks a run.
    assert {name: own[0] for name, own in ranks.items()} == {"alibi": 1.25, "none": 1.75, "rotary": 3.0}
    # The third seed is the median in 7 of 27 draws: drawn at least twice.
    assert (ranks["alibi"] > ranks["none"]).mean() == pytest.approx(7 / 27, abs=0.04)
    early = group_runs(
        TASKS, [run for run in runs if (run["task"], run["encoding"]) in {("copy", "none"), ("count", "t5")}]
    )
    assert describe_ranks(early).startswith("No mean ranks yet")
    # The first runs of another seed leave the ranks by the seeds before.
    going_on = [run for run in runs if run["seed"] == 0 or (run["seed"], run["task"]) == (1, "copy")]
    ranks = draw_mean_ranks(group_runs(TASKS, going_on), draws=10)
    assert {name: set(own) for name, own in ranks.items()} == {
        "alibi": {2.0},
        "none": {2.5},
        "rotary": {4.0},
        "t5": {1.5},
    }


def test_steps_and_rate_take_the_place_of_a_tasks():
    asked = study.StudyArguments(tasks=["copy"], encodings=["rotary"], seeds=1, steps=7, learning_rate=0.5)
    (planned,) = study.plan_runs(asked)
    assert (planned.task.steps, planned.task.learning_rate) == (7, 0.5)


def test_a_process_that_is_ended_ends_the_command():
    with pytest.raises(BadInput, match="a process was ended, .*; give fewer --processes"):
        with study.start_workers(2) as map_runs:
            list(map_runs(os._exit, [1]))


def test_refusals(run, small, tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    folder.mkdir()

    def refused(message, *arguments):
        with pytest.raises(SystemExit, match=f"^error: [^\n]*{message}[^\n]*$"):
            run(*arguments)

    asked = [*small, "--tasks", "copy", "--processes", 1]
    refused("unknown task 'coppy'; did you mean copy", study, *small, "--tasks", "coppy")
    refused("unknown encoding 'rotery'; did you mean rotary", study, *asked, "--encodings", "rotery")
    refused("--encodings is missing; name some", study, *asked[:4], "--tasks", "copy")
    refused("arguments are required: --tasks", study, *small)
    refused("seeds is 0; choose at least 1", study, *asked, "--seeds", 0)
    lines = {"{}": "line 1: not a finished run; remove the line", "[": "line 1: not a finished run"}
    recipe = {"task": "copy", "encoding": "rotary", "seed": 0, "recipe": {"steps": 3}}
    lines[json.dumps(recipe)] = (
        "line 1: copy with rotary has symbols None there and 66 here; give another --output_dir"
    )
    for line, message in lines.items():
        (folder / "runs.jsonl").write_text(line + "\n")
        refused(message, study, *asked)
        assert (folder / "runs.jsonl").read_text() == line + "\n"
    (folder / "runs.jsonl").unlink()

    variants = tmp_path / "variants.yaml"
    for text, message in {
        "[rotary]": "give the fields of each variant below its name",
        "{}": "give the fields of each variant below its name",
        "mine: rotary": "give the fields of each variant below its name",
        "mine: {hidden_size: 8}": "'mine' has 'hidden_size'; choose from cope_max_position",
        "rotary: {position_embedding_type: none}": "'rotary' needs a name of its own that is text",
        "mine: {t5_num_buckets: 8}": "'mine' needs a name of its own that is text, and a position_embedding_type",
        "1: {position_embedding_type: none}": "1 needs a name of its own that is text",
        "mine: {position_embedding_type: alibi, fire_threshold: 4}": "'mine' has 'fire_threshold', which 'alibi' does not read",
        "mine: {position_embedding_type: [rotary, none]}": "mine cannot do copy: .* 2 names for 1 layers",
        "mine: {position_embedding_type: t5, t5_num_buckets: few}": "mine cannot do copy: .*t5_num_buckets is 'few'",
    }.items():
        variants.write_text(text)
        refused(message, study, *asked, "--variants_file", variants)

    class Short(POSITION_EMBEDDINGS["none"]):
        @staticmethod
        def check_config(config):
            raise ValueError("positions end at 16")

    monkeypatch.setitem(POSITION_EMBEDDINGS, "short", Short)
    refused(
        "short cannot do copy: positions end at 16; choose another encoding", study, *asked, "--encodings", "short"
    )
    assert not list(folder.iterdir())
