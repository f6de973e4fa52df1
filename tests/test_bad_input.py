import bz2
import gzip
import io
import lzma
import math
import os
import shlex
import shutil
import subprocess
import sys

import pyarrow
import pytest
from safetensors.torch import load_file, save_file

import evaluate_birthplace
import train_finetune
import train_pretrain
from conftest import ON_CPU, ROOT, TINY
from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.questions import load_questions
from posgpt import cli, preview

PAIR = "Where was Ada Example born?\tRome\n"
BAD_PAIRS = {
    "empty": ("", "file is empty"),
    "blank": ("\n \n", "every line is blank"),
    "no tab": (PAIR * 2 + "Where was Bo Ek born? Oslo\n" * 3, "line 3: no tab .*3 of 5 lines have none"),
    "no answer": (PAIR + "Where was Bo Ek born?\n", "line 2: no tab .*1 of 2 lines have none"),
    "two tabs": (PAIR + "Where was Bo Ek born?\tOslo\tNorway\n", "line 2: 2 tabs"),
    "no place": (PAIR + "Where was Bo Ek born?\t\n", "line 2: no answer after the tab"),
    "other question": (PAIR + "Who is Bo Ek?\tOslo\n", "line 2: .*not of the form 'Where was NAME born"),
    "reserved": (PAIR + "Where was Bo ⁇ born?\tOslo\n", "line 2: holds '⁇'"),
    "null": (PAIR + "Where was Bo\0 born?\tOslo\n", "line 2: holds '.x00', a null character"),
    "reserved in the place": (PAIR + "\n" + "Where was Bo Ek born?\tOs□lo\n", "line 3: holds '□'"),
    "in quotation marks": ('"Where was Ada Example born?"\t"Rome"\n' * 2, "line 1: all questions are in quotation"),
    "not UTF-8": (
        b"\xef\xbb\xbf" + PAIR.encode() + "Where was Zoë Ek born?\tOslo\n".encode("latin1"),
        "line 2: byte 13",
    ),
    "tabs that became spaces": (PAIR.replace("\t", "    ") * 4, "line 1: no tab .*4 of 4 .*tab became spaces"),
}
BAD_CORPORA = {
    "empty": ("", "file is empty"),
    "blank": ("\n\n", "every line is blank"),
    "not UTF-8": ("Ada Example. Fine .\nZoë Ek. Fine .\n".encode("latin1"), "line 2: byte 3"),
    "UTF-16": (
        "Ada Example. Fine .\n".encode("utf-16"),
        r"line 1: byte 1 .*save the file as UTF-8 .*iconv -f utf-16 -t utf-8",
    ),
    "mask": ("Ada Example. Fine .\nBo Ek. What ⁇ .\n", "line 2: holds '⁇'"),
    "pad": ("Bo Ek. A □ .\n", "line 1: holds '□'"),
    "null": ("Ada. Fine .\nBo Ek.\0 Fine .\n", r"line 2: holds '\\x00', a null character, which no text has; replace"),
}
# What other files begin with; the files have any name.
OTHER_FILES = {
    "gzip": (gzip.compress(b"Ada. Fine .\n"), "compressed with gzip; make its name end in .gz, or unpack it"),
    "zstd": (bytes(pyarrow.compress(b"Ada. Fine .\n", "zstd")), "compressed with zstd; make its name end in .zst"),
    "bzip2": (bz2.compress(b"Ada. Fine .\n"), "compressed .*.bz2.*; unpack it"),
    "xz": (lzma.compress(b"Ada. Fine .\n"), "compressed .*.xz.*; unpack it"),
    "xlsx": (b"PK\x03\x04\x14\0", "a spreadsheet, .* or a ZIP archive; save it as CSV, or unpack it"),
    "pdf": (b"%PDF-1.7\n", "a spreadsheet, a PDF"),
    "parquet": (b"PAR1\x15\x04", "a Parquet table; make its name end in .parquet"),
    "HTML": ("\ufeff \n<!DOCTYPE html>\n<html>", "a page of HTML or XML; save the text or the table"),
    "LFS": ("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "a Git LFS pointer.*: git lfs pull"),
}


def write(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.fixture
def refused(run, tmp_path):
    """Run a script with an output folder; check that it stops with one line that matches, and leaves nothing behind."""

    def run_and_check(match, script, *arguments, names=""):
        output_dir = tmp_path / "output"
        with pytest.raises(SystemExit, match=match) as stop:
            run(script, *arguments, "--output_dir", output_dir)
        assert "\n" not in stop.value.code and stop.value.code.startswith("error: ")
        assert str(names) in stop.value.code and not output_dir.exists()

    return run_and_check


@pytest.mark.parametrize("kind", BAD_PAIRS)
def test_pairs_to_finetune_or_to_evaluate_on(refused, tmp_path, tiny_pretrained, kind):
    content, match = BAD_PAIRS[kind]
    file, model = write(tmp_path / "pairs.tsv", content), ["--model_name_or_path", tiny_pretrained["rotary"]]
    refused(match, evaluate_birthplace, *model, "--test_file", file, names=file)
    refused(match, train_finetune, *model, *ON_CPU, "--train_file", file, names=file)


def test_questions_are_never_cut(refused, tmp_path, tiny_pretrained):
    model = ["--model_name_or_path", tiny_pretrained["rotary"]]
    file = write(tmp_path / "questions.tsv", f"Where was {'A' * 112} born?\n")
    match = "line 1: the question has 128 characters.*maximum sequence length is 128: no room"
    refused(match, evaluate_birthplace, *model, "--test_file", file, names=file)
    write(file, PAIR + f"Where was {'Ab ' * 50}born?\tOslo\n")
    match = "line 2: question and answer take 17[0-9] characters .*maximum sequence length is 128"
    refused(match, train_finetune, *model, *ON_CPU, "--train_file", file, names=file)


@pytest.mark.parametrize("kind", BAD_CORPORA)
def test_a_corpus(tmp_path, kind):
    content, match = BAD_CORPORA[kind]
    file = write(tmp_path / "wiki.txt", content)
    with pytest.raises(BadInput, match=f"{file}.* {match}"):
        load_corpus(file)


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_a_file_that_is_something_else_is_recognized_by_its_first_bytes(tmp_path, kind):
    content, match = OTHER_FILES[kind]
    for name, load in (
        ("named.txt", load_corpus),
        ("named.csv", load_corpus),
        ("named.txt.zst", load_corpus),
        ("named.tsv", load_questions),
    ):
        file = write(tmp_path / name, content)
        if name.endswith(".zst"):
            write(file, bytes(pyarrow.compress(file.read_bytes(), "zstd")))
        with pytest.raises(BadInput, match=f"^{file}.*{match}"):
            load(file)


def test_texts_that_begin_like_other_files_are_texts(tmp_path):
    for line in ("BZhedug. A tribe .", "PK. A kick .", "PAR1. A gene .", "version. Of a text .", "<b>. A tag ."):
        assert list(load_corpus(write(tmp_path / "wiki.txt", line))["text"]) == [line]


def test_a_pointer_in_a_model_folder_is_named_with_its_command(refused, world, tmp_path, tiny_pretrained):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        folder = shutil.copytree(tiny_pretrained["rotary"], tmp_path / name)
        write(folder / name, OTHER_FILES["LFS"][0])
        arguments = ["--model_name_or_path", folder, "--test_file", world / "birth_dev.tsv"]
        refused("a Git LFS pointer.*git lfs pull", evaluate_birthplace, *arguments, names=folder / name)


@pytest.fixture(scope="module")
def folder(world, tiny_pretrained, tmp_path_factory):
    """What the command lines below name: a world, models, and files that are not what they should be."""
    folder = tmp_path_factory.mktemp("given")
    for file in world.iterdir():
        shutil.copy(file, folder)
    for name in ("learned", "rotary"):
        shutil.copytree(tiny_pretrained[name], folder / name)
    for name, content in (
        ("bad.tsv", "Bo Ek\n"),
        ("bad.txt", b"Bo \xff"),
        ("gpt2/config.json", '{"model_type": "gpt2"}'),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder / name, content)
    (folder / "empty").mkdir()
    return folder


COMMANDS = {
    "pretrain": (train_pretrain, [*TINY, "--train_file", "wiki.txt"]),
    "pretrain alone": (train_pretrain, ON_CPU),
    "finetune": (train_finetune, ["--train_file", "birth_places_train.tsv", *ON_CPU]),
    "finetune alone": (train_finetune, ON_CPU),
    "evaluate": (evaluate_birthplace, ["--model_name_or_path", "rotary", "--test_file", "birth_dev.tsv"]),
    "evaluate alone": (evaluate_birthplace, []),
}
# For each command: what is added to it, and what is said.
REFUSED = {
    "pretrain": {
        # Sizes that are not compatible.
        "--num_attention_heads 7": "num_attention_heads.*7",
        """--rope_parameters '{"rope_type": "linear"}' --position_embedding_type rotary""": "factor",
        "--hidden_size 6 --position_embedding_type rotary": "an even head size",
        "--position_embedding_type rotery": "'rotery' .choose from 'learned'.*'rotary'",
        "--block_size 5": "block_size is 5",
        "--hidden_size wide": "--hidden_size.*'wide'",
        "--hiden_size 16": "unknown option --hiden_size; did you mean --hidden_size?",
        "--rope_parameters {rope} --position_embedding_type rotary": "rope_parameters is '{rope}'; give a JSON object",
        "--dropout 1.5": "dropout.*1.5",
        "--attn_implementation fast": "attn_implementation.*fast",
        # How to train.
        "--per_device_train_batch_size 0": "per_device_train_batch_size is 0",
        "--seed -1": "seed is -1",
        "--max_steps 0": "max_steps is 0; choose at least 1",
        "--eval_strategy steps": "add --validation_file",
        "--eval_steps 5": "add --validation_file",
        "--learning_rate -1": "learning_rate is -1.0; choose at least 0",
        "--learning_rate nan": "learning_rate is nan",
        "--gradient_accumulation_steps 0": "gradient_accumulation_steps is 0; choose at least 1",
        "--num_train_epochs 0 --max_steps -1": "num_train_epochs is 0.0; choose at least 0.01",
        "--use_muon true --adam_beta1 2": "these options cannot be used: .*beta",
        "--dataloader_drop_last true": "dataloader_drop_last cannot be used: every epoch reads",
        "--ignore_data_skip true": "ignore_data_skip cannot be used: a resumed training would read other rows",
        "--dataloader_persistent_workers true": "dataloader_persistent_workers cannot be used: it follows",
        "--load_best_model_at_end true": "nothing to evaluate on; add --validation_file",
        "--save_strategy best --metric_for_best_model accuracy": "nothing to evaluate on; add --validation_file",
        """--accelerator_config '{"split_batches": true}'""": "split_batches cannot be used",
        "--eval_do_concat_batches false": "eval_do_concat_batches has to be true",
        "--auto_find_batch_size": "auto_find_batch_size.*would change how many rows",
        "--corpus_weights 1 2": "corpus_weights has 2 numbers for 1 corpora",
        "--lr_schedule tokens --warmup_steps 100": "--warmup_steps is an option of lr_schedule steps, not of tokens; .* add",
        "none.yaml": "none.yaml: no such recipe",
    },
    "pretrain alone": {
        "--train_file none.txt": "none.txt: no such file",
        "--train_file empty": "empty: this is a directory",
        "--train_file bad.txt": "bad.txt, line 1: byte 4",
    },
    "finetune": {
        "--model_name_or_path gpt2": "gpt2: .*holds a 'gpt2' model",
        "--model_name_or_path no/where": "no/where.*no PosGPT could be loaded|no PosGPT could be loaded.*no/where",
        "": "no model to start from",
        "windows": "no model to start from: give --model_name_or_path",
        "windows --vocabulary_file wiki.txt": "windows.yaml: has no section 'finetune_from_scratch' .*choose a recipe that has one .*quickstart",
        "--model_name_or_path learned --hidden_size 64": "hidden_size cannot change",
        "--model_name_or_path learned --vocabulary_file wiki.txt": "brings its own vocabulary",
        "--vocabulary_file wiki.txt --validation_file bad.tsv": "bad.tsv, line 1: ",
        "--vocabulary_file wiki.txt --validation_file none.tsv": "none.tsv: no such file",
        "--vocabulary_file bad.txt": "bad.txt, line 1: byte 4",
    },
    "finetune alone": {
        "--model_name_or_path rotary --train_file none.txt": "none.txt: no such file",
        "--model_name_or_path rotary --train_file empty": "empty: this is a directory",
    },
    "evaluate": {
        "--train_file birth_test_inputs.tsv": "birth_test_inputs.tsv, line 1: has questions without answers; give a TSV",
        "--per_device_eval_batch_size 0": "per_device_eval_batch_size",
        "--max_new_tokens 0": "max_new_tokens",
        "--baseline Rome": "--baseline gives everyone one answer and asks no model",
        "--title_column film": "--title_column says how to read a corpus; add --corpus_file",
        "--title_column film --corpus_file wiki.txt --report page": "--title_column is of a table, and .*wiki.txt is a text file; leave it",
    },
    "evaluate alone": {
        "--model_name_or_path rotary --test_file none.txt": "none.txt: no such file",
        "--model_name_or_path rotary --test_file empty": "empty: this is a directory",
        "--model_name_or_path empty --test_file birth_dev.tsv": "empty.*not a model folder",
        "--model_name_or_path gpt2 --test_file birth_dev.tsv": "gpt2.*holds a 'gpt2' model",
        "--model_name_or_path no/where --test_file birth_dev.tsv": "no PosGPT could be loaded.*no/where|no/where.*no PosGPT",
        "--baseline Rome --test_file birth_dev.tsv --report report": "--baseline gives everyone one answer and asks no model",
        "--baseline Rome --test_file birth_dev.tsv --dtype bfloat16": "asks no model; leave out --dtype",
        "--baseline Rome": "arguments are required: --test_file",
        "--test_file birth_dev.tsv": "--model_name_or_path is missing; .*--baseline",
    },
}


@pytest.mark.parametrize("command, line", [(name, line) for name, lines in REFUSED.items() for line in lines])
def test_a_command_line_that_cannot_be(refused, folder, monkeypatch, command, line):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    script, arguments = COMMANDS[command]
    given = shlex.split(line)
    recipe = [given.pop(0)] if given and not line.startswith("-") else []
    refused(REFUSED[command][line], script, *recipe, *arguments, *given)
    assert sorted(folder.rglob("*")) == before


def halve_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def make_weights_infinite(folder):
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][0, 0] = math.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


DAMAGES = {
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "half the weights": halve_weights,
    "weights that are not finite": make_weights_infinite,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_folder(refused, world, tmp_path, tiny_pretrained, damage):
    folder = shutil.copytree(tiny_pretrained["rotary"], tmp_path / "model")
    DAMAGES[damage](folder)
    arguments = ["--model_name_or_path", folder, "--test_file", world / "birth_dev.tsv"]
    refused("no PosGPT could be loaded", evaluate_birthplace, *arguments, names=folder)


def test_a_file_for_predictions_that_cannot_be_written(refused, tmp_path):
    dev = write(tmp_path / "dev.tsv", PAIR)
    for path, match in (
        (tmp_path / "new" / "a.predictions", f"there is no folder {tmp_path / 'new'}; create it"),
        (tmp_path, "this is a directory"),
        (dev, "this file is read"),
        ("/dev/null", "is a device or a pipe"),
        (tmp_path / "output" / "metrics.json", "has other results"),
    ):
        baseline = ["--baseline", "Rome", "--test_file", dev]
        refused(match, evaluate_birthplace, *baseline, "--predictions_file", path, names=path)
    assert dev.read_text() == PAIR


def test_a_command_runs_in_a_models_folder_whose_code_has_the_packages_name(tmp_path):
    (tmp_path / "modeling_posgpt.py").write_text("raise ImportError")
    command = [sys.executable, "-m", "posgpt", "world", "--output_dir", "world", "--num_people", "100"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "world" / "wiki.txt").is_file()


def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word():
    code = (
        "from data_scripts.errors import exit_on_bad_input\nwith exit_on_bad_input():\n    while True: print('more')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "more\n"
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(60) == 1


def test_a_preview_of_nothing_or_of_a_bad_file_or_section(run, world, tmp_path):
    file = write(tmp_path / "pairs.tsv", PAIR + "Where was Bo Ek born? Oslo\n")
    for arguments, match in (
        (["--section", "pretrain", "--train_file", world / "wiki.txt", "--examples", 0], "examples"),
        (["--section", "finetune", "--train_file", file], "pairs.tsv, line 2: no tab"),
        (["--section", "train", "--train_file", file], "--section: .*'train' .choose from 'pretrain'"),
    ):
        with pytest.raises(SystemExit, match=f"error: .*{match}"):
            run(preview, *arguments)


def test_posgpt_without_a_known_command_lists_the_commands(run, capsys):
    assert "pretrain" in run(cli) and "hold-out" in run(cli, "--help")
    with pytest.raises(SystemExit, match="error: posgpt has no command 'train'; choose one of pretrain, finetune"):
        run(cli, "train")


# The others need no options.
@pytest.mark.parametrize("command", sorted(cli.COMMANDS.keys() - {"quickstart", "study"}))
def test_a_command_without_options_ends_in_one_line(command, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="^error: [^\n]+$"):
        run(cli, command)


def test_recipes(refused, world, tmp_path):
    corpus = ["--train_file", world / "wiki.txt"]
    recipe = tmp_path / "mine.yaml"
    looping = write(tmp_path / "looping.yaml", f"base: {recipe}")
    for content, match in (
        ("pretrain: [", "not YAML that can be read"),
        ("pretrain: {objective: cloze}", "--objective: .*'cloze' .choose from 'span_corruption'"),
        ("pretrain: {objective: name_windows, window_wording: poem}", "--window_wording: .*'poem'"),
        ("pretrain: {objective: name_windows, max_spans: 0}", "max_spans is 0; choose at least 1"),
        ("finetune: {seed: 1}", "no section 'pretrain'"),
        ("pretrain: {learning_rat: 1}", "section 'pretrain': unknown option --learning_rat; did you mean --l"),
        ("pretrain: {learning_rate: fast}", "learning_rate.*'fast'"),
        ("pretrain: {lr_schedule: epochs}", "lr_schedule: .*'epochs'"),
        ("pretrain: {first_shares: [0.1, some]}", "--first_shares: invalid float value: 'some'"),
        ("base: course\npretrain: {final_tokens: 10000}", "final_tokens is 10,000; choose more than warmup_tokens"),
        ("base: corse", "corse: no such recipe"),
        (f"base: {recipe}", "its base is this recipe itself"),
        (f"base: {looping}", "looping.yaml: its base is this recipe itself, or derived from it"),
        ("base: windows\npretrain: fast", "'pretrain' has to be a section, with an option per line"),
    ):
        recipe.write_text(content)
        refused(match, train_pretrain, recipe, *corpus)
    recipe.write_bytes("pretrain:\n  # für alle\n".encode("latin1"))
    refused("mine.yaml, line 2: byte 6 of the line is not UTF-8; save", train_pretrain, recipe, *corpus)


def test_a_training_needs_a_folder_to_save_to(run, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="give one with --output_dir"):
        run(train_pretrain, *TINY, "--train_file", world / "wiki.txt")
    assert not list(tmp_path.iterdir())


def test_an_output_folder_with_a_finished_model_or_an_unfinished_run(run, world, tmp_path, tiny_pretrained):
    finished = tiny_pretrained["learned"]
    before = {file: file.stat().st_mtime_ns for file in finished.rglob("*")}
    corpus = ["--train_file", world / "wiki.txt", *TINY]
    with pytest.raises(SystemExit, match="already holds a finished model.*--overwrite_output_dir"):
        run(train_pretrain, *corpus, "--output_dir", finished)
    pairs = ["--train_file", world / "birth_places_train.tsv", "--vocabulary_file", world / "wiki.txt"]
    with pytest.raises(SystemExit, match="already holds a finished model.*--overwrite_output_dir"):
        run(train_finetune, *pairs, "--output_dir", finished, *TINY)
    assert {file: file.stat().st_mtime_ns for file in finished.rglob("*")} == before

    (tmp_path / "README.md").write_text("Mine.\n")
    for resume in ([], ["--resume_from_checkpoint", "auto"], ["--resume_from_checkpoint", "false"]):
        with pytest.raises(SystemExit, match="README.md: is there, and saving a model may replace it"):
            run(train_pretrain, *corpus, "--output_dir", tmp_path, *resume)
    for name in ("layers.py", "mine.py", "task.json", "run.json"):
        (own := tmp_path / f"own_{name}").mkdir()
        (own / name).write_text("mine")
        with pytest.raises(SystemExit, match=f"{name}: is there, and saving a model may replace it"):
            run(train_pretrain, *corpus, "--output_dir", own)
    with pytest.raises(SystemExit, match="seed is 8,472,619,350; choose"):
        run(train_pretrain, *corpus, "--output_dir", tmp_path / "new", "--seed", 8472619350)
    unfinished = tmp_path / "unfinished"
    (unfinished / "checkpoint-2").mkdir(parents=True)
    with pytest.raises(SystemExit, match="unfinished run; --resume_from_checkpoint last"):
        run(train_pretrain, *corpus, "--output_dir", unfinished)
    with pytest.raises(SystemExit, match="no whole checkpoint to resume from"):
        run(train_pretrain, *corpus, "--output_dir", tmp_path / "new", "--resume_from_checkpoint", "last")

    file = write(tmp_path / "file", "mine")
    for output_dir in (file, file / "below"):
        with pytest.raises(SystemExit, match=f"^error: {file}: this is a file[^\n]*$"):
            run(train_pretrain, *corpus, "--output_dir", output_dir)
    assert file.read_text() == "mine"


def test_unknown_characters_are_said_and_do_not_stop(run, tmp_path, tiny_pretrained):
    file = write(tmp_path / "pairs.tsv", PAIR + "Where was Žofie Ek born?\tRome\n")
    arguments = ["--model_name_or_path", tiny_pretrained["rotary"], "--test_file", file]
    printed = run(evaluate_birthplace, *arguments, "--output_dir", tmp_path / "eval")
    assert "are read as '□', 1 in all" in printed and "'Ž' × 1" in printed
    assert len((tmp_path / "eval" / "predictions.txt").read_text().splitlines()) == 2


def test_what_windows_writes_to_a_file_or_a_pipe_is_utf_8(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    with exit_on_bad_input():
        print("Where was Łukasz born?⁇Łódź⁇", end="", flush=True)
    assert written.getvalue().decode("utf-8") == "Where was Łukasz born?⁇Łódź⁇"


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command, run, capsys):
    try:
        printed = run(cli, command, "--help")
    except SystemExit as end:
        assert end.code == 0
        printed = capsys.readouterr().out
    assert printed.startswith("usage: ")
