"""A study: a model is trained for each row of a YAML file and each seed, and asked.

    posgpt study positions --data_dir data
    posgpt study knowledge --data_dir data --rows "AdamW" "no cues" --seeds 42 43
    posgpt study mine.yaml --data_dir data --output_dir runs/mine

`studies/study.py` says what such a file may hold. Finished trainings are kept and interrupted ones are resumed, so the same
command can be given again, also with more seeds. The table and the chart are of the rows and seeds of one command, and are written
after each of them.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from data_scripts.documents import load_corpus
from data_scripts.errors import BadInput, prefix_bad_input
from data_scripts.files import (
    CORPUS_FILE,
    DEV_FILE,
    RELATIONS_FILE,
    TRAIN_FILE,
    check_is_folder_or_new,
    hash_file,
    make_file_name,
    remove_if_refused,
    split_people,
    write_file,
)
from data_scripts.hold_out import CALIBRATION_FILE, HoldOutArguments, hold_out
from data_scripts.options import list_given, parse_options
from data_scripts.questions import Questions, load_questions
from data_scripts.relations import Relation, load_relations, read_relations
from data_scripts.synthetic_world import World
from data_scripts.world_questions import QUESTIONS
from posgpt.evaluation.data import EvaluationData, check_questions
from posgpt.evaluation.predictions import TEST, answer_questions
from posgpt.evaluation.scoring import ScoredQuestions
from posgpt.imports import take_imports
from posgpt.pretrain import load_pretraining_data
from posgpt.recipe_parser import LENGTHS, parse_with_recipe
from posgpt.tables import write_table
from posgpt.training.architecture import ArchitectureArguments
from posgpt.training.checkpoints import WEIGHTS_FILE
from posgpt.training.hardware import count_cores
from posgpt.training.run_record import read_record
from studies.honesty import ask_strangers
from studies.recall import measure_model, read_objective
from studies.rows import (
    GROUPINGS,
    count_right,
    describe_row,
    draw_rows,
    list_answers,
    list_curves,
    list_results,
)
from studies.study import Row, Study, SweepArguments, load_study
from studies.training_runs import (
    COMMANDS,
    Record,
    ask_once,
    build_command,
    count_rows_per_step,
    estimate_minutes,
    keep_result,
    train,
    train_ahead,
)


@dataclass(frozen=True)
class RowFiles:
    """What a row is trained on and asked, and the relations that this asks for, where known; in `data_dir` nothing is held out."""

    data_dir: Path
    train: Path
    asked: Path
    relations: tuple[Relation, ...] = ()

    @property
    def corpus(self) -> Path:
        """The documents."""
        return self.data_dir / CORPUS_FILE


@dataclass(frozen=True)
class Sweep:
    """What all trainings of a study have in common; in `results` is what depends on whom the models are asked about."""

    arguments: SweepArguments
    study: Study
    output_dir: Path
    results: Path
    # By the names of the rows.
    files: dict[str, RowFiles]

    def find_folder(self, row: Row, seed: int, stage: str) -> Path:
        """Return where a model is. One that has only read documents does not depend on who is held out."""
        is_shared = stage == "pretrain" and not self.study.reads_questions and not self.study.ask_every
        folder = self.output_dir if is_shared else self.results
        return folder / f"{make_file_name(row.name)}_{seed}" / stage

    def find_edits(self, row: Row) -> Path:
        """Return where a row's edits are."""
        return self.output_dir / f"edits_{make_file_name(row.name)}.tsv"

    def list_trainings(self, row: Row, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield stage, section of the recipe and options of each training of a row."""
        start, files = self.arguments.model_name_or_path, self.files[row.name]
        if row.pretrain is not None:
            read: dict[str, Any] = {"train_file": files.corpus}
            if self.study.reads_questions:
                read["questions_file"] = files.train
            if row.edits:
                read["edits_file"] = self.find_edits(row)
            # The usual English questions are known anyway.
            if row.world and (
                row.world.language_of.relations_file or row.world.wording or not self.study.reads_questions
            ):
                read["relations"] = files.data_dir / RELATIONS_FILE
            if every := self.study.ask_every:
                read |= {"validation_file": files.asked, "eval_strategy": "steps", "eval_steps": every}
            yield "pretrain", "pretrain", self.complete("pretrain", read | {"seed": seed} | row.pretrain)
            start = str(self.find_folder(row, seed, "pretrain"))
        if row.finetune is not None:
            section = "finetune" if start else "finetune_from_scratch"
            source = {"model_name_or_path": Path(start).resolve()} if start else {"vocabulary_file": files.corpus}
            drawn = self.find_folder(row, seed, "finetune").with_name(TRAIN_FILE)
            options = source | {"train_file": drawn if row.pairs else files.train, "seed": seed, "eval_strategy": "no"}
            yield "finetune", section, self.complete(section, options | row.finetune)

    def complete(self, section: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return options without those that are None, and with those that split a training step as the command line says."""
        # YAML reads `no` as false.
        strategies = {name: "no" for name, value in options.items() if value is False and name.endswith("_strategy")}
        options = {name: value for name, value in options.items() if value is not None} | strategies
        size, micro = count_rows_per_step(section, options), self.arguments.micro_batch_size
        if micro is None or size <= micro:
            return options
        if size % micro:
            raise BadInput(
                f"--micro_batch_size {micro} does not divide {options['recipe']}'s {size}; choose a divisor."
            )
        return options | {"per_device_train_batch_size": micro, "gradient_accumulation_steps": size // micro}

    def check_rows(self, rows: list[Row]) -> None:
        """Raise BadInput for an option that a training would refuse after those before it were trained."""
        for row in rows:
            for _, section, options in self.list_trainings(row, self.study.seeds[0]):
                if own := {"output_dir", "resume_from_checkpoint"}.intersection(options):
                    raise BadInput(f"row {row.name!r}: {min(own)} is the study's; leave it out.")
                command = import_module(f"posgpt.{COMMANDS[section]}")
                argv = build_command(**options, output_dir=self.output_dir)
                # What a recipe says in vain is said again when the row is trained.
                with prefix_bad_input(f"row {row.name!r}"), redirect_stdout(None):
                    parsed = parse_with_recipe(command.TYPES, section, argv)
                    if row.edits:
                        # They may not fit the documents.
                        load_pretraining_data(*parsed)

    def check_questions(self, rows: list[Row]) -> None:
        """Raise BadInput for questions that cannot be asked once a model is trained, or that are too few for a row's pairs."""
        read = dict[tuple[RowFiles, bool], int]()
        for row in rows:
            if (key := (self.files[row.name], row.finetune is None)) not in read:
                train = self.load_pairs(row)
                known = [*self.load_known_relations(row), *train.relations]
                load_questions(self.files[row.name].asked, answers=True, known=known)
                read[key] = len(train)
            if row.pairs and row.pairs > read[key]:
                raise BadInput(f"{row.name}: there are {read[key]:,} pairs to draw from; leave the row out.")

    def say_minutes(self, rows: list[Row]) -> None:
        """Say how many runs are to come and how long they take, by a few steps with each recipe, length, corpus and architecture.

        What begins with a model that is yet to be pretrained, or with pairs that are yet to be drawn, takes little beside them.
        """
        count, minutes, timed = 0, 0.0, dict[tuple, float]()
        decisive = ["recipe", "objective", "per_device_train_batch_size", "train_file", *LENGTHS]
        decisive += [each.name for each in fields(ArchitectureArguments)]
        for seed, row in product(self.study.seeds, rows):
            for number, (stage, section, options) in enumerate(self.list_trainings(row, seed)):
                if (self.find_folder(row, seed, stage) / WEIGHTS_FILE).is_file():
                    continue
                count += 1
                if number == 0 and not (row.pairs and stage == "finetune"):
                    key = section, *(str(options.get(name)) for name in decisive)
                    if key not in timed:
                        timed[key] = estimate_minutes(section, options)
                    minutes += timed[key]
        one_by_one = " one after the other" if self.arguments.processes > 1 else ""
        if count:
            print(
                f"\n{count} runs to come{f', about {minutes:,.0f} minutes{one_by_one}' if minutes else ''}.",
                flush=True,
            )

    def load_known_relations(self, row: Row) -> list[Relation]:
        """Return the relations of a row's world, and those that its options name."""
        return [
            *self.files[row.name].relations,
            *chain(*(load_relations((stage or {}).get("relations")) for stage in (row.pretrain, row.finetune))),
        ]

    def load_pairs(self, row: Row) -> Questions:
        """Return the training questions as the row's trainings read them."""
        files = self.files[row.name]
        # Titles show forms that are not known. Finetuning reads no documents, and knows what its model was asked.
        sees_titles = files.corpus.is_file() and (row.finetune is None or self.study.reads_questions)
        corpus = load_corpus(files.corpus) if sees_titles else None
        return load_questions(files.train, answers=True, known=self.load_known_relations(row), corpus=corpus)

    def draw_pairs(self, row: Row, number: int, seed: int) -> None:
        """Write the pairs that a row is finetuned on."""
        pairs = self.load_pairs(row)
        # The draws of one seed contain each other.
        chosen = pairs.take(sorted(np.random.default_rng(seed).permutation(len(pairs))[:number].tolist()))
        lines = "".join(f"{line}\n" for line in chosen.format_lines())
        write_file(self.find_folder(row, seed, "finetune").with_name(TRAIN_FILE), lines)

    def train(self, row: Row, seed: int, threads: int | None = None) -> Record:
        """Train a row's model, unless that is done; return what `train` returns of each stage by its name."""
        if row.pairs:
            self.draw_pairs(row, row.pairs, seed)
        return {
            stage: train(f"{row.name}, seed {seed}", section, options, self.find_folder(row, seed, stage), threads)
            for stage, section, options in self.list_trainings(row, seed)
        }

    def run(self, row: Row, seed: int, trained: Record | None = None) -> Record:
        """Ask a row's model, unless that is done. What `train` has returned is `trained`; None: it is trained first.

        Returns:
            The `seed`, of several worlds that of its `world`, what `ask` returns, what `train` returns of each stage by its name, what
            `measure_recall` does, the hash of the `asked_file`, what `weigh_candidates` returns as `among` and `ask_strangers` as `strangers`. In a world: for each question the number
            of the person whom it comes with, as `people`; `num_people`, for how many its stored bits are counted; and of GROUPINGS
            those that the world has, for each answer its number, or None if no person's document tells it.
        """
        record: Record = {"measures": {}, "seed": seed} | (trained or self.train(row, seed))
        if self.study.world_seeds:
            record["world"] = row.world.seed
        model, files, world = Path(self.arguments.model_name_or_path or ""), self.files[row.name], row.world
        for stage, _, options in self.list_trainings(row, seed):
            model = self.find_folder(row, seed, stage)
            if stage == "pretrain" and self.study.recall:
                record |= self.measure_recall(model, options, files)
        folder = self.results / f"{make_file_name(row.name)}_{seed}"
        record |= ask(model, files.asked, folder / "asked.json", files.relations)
        record["asked_file"] = hash_file(files.asked)
        if world is None:
            return record
        # All are taken to be known as well as those of dev, but those of training are known better than others.
        taught = split_people(world.num_people)[TRAIN_FILE]
        record["num_people"] = len(taught) if self.study.ask_training else world.num_people
        if self.study.candidates:
            record["among"] = weigh_candidates(model, files.asked, folder / "among.json", world)
        if self.study.strangers:
            record["strangers"] = ask_strangers(model, folder / "strangers.json", world, self.study.strangers)
        people = world.number_titles(files.asked.name)
        record["people"] = [people[title] for title in record["titles"]]
        # What no person's document says has no bits of its own.
        has_bits = world.entropy()
        for column, grouping in GROUPINGS.items():
            if getattr(world, grouping.option):
                record[column] = [
                    grouping.number(world, people[title], relation) if relation in has_bits else None
                    for title, relation in zip(record["titles"], record["relations"], strict=True)
                ]
        return record

    def measure_recall(self, model: Path, options: dict[str, Any], files: RowFiles) -> Record:
        """Return what a pretrained model recalls about those whose questions it has not read.

        `measures`, the right ones and all of each, and `recalled`, what else `measure_model` returns.
        """
        people_file = files.asked if self.study.reads_questions else files.data_dir / TRAIN_FILE

        def compute() -> Record:
            recall = measure_model(str(model), files.corpus, people_file, read_objective(**options), files.relations)
            measures = {measure: [int(each.sum()), len(each)] for measure, each in recall.measures.items()}
            recalled = {name: getattr(recall, name) for name in ("surprisals", "relations", "titles")}
            return {"measures": measures, "recalled": recalled}

        # What is kept of earlier versions lacks some of these, or has other answers.
        key = {"people": hash_file(people_file), "model": hash_file(model / WEIGHTS_FILE), "columns": 4}
        return keep_result(model / "recall.json", key, compute)


def ask(model_dir: Path, test_file: Path, kept_file: Path, relations: Sequence[Relation] = ()) -> Record:
    """Ask a model the questions of a TSV, each once; `relations` are known besides the model's and those that all files know.

    Returns:
        `answers`, `probabilities` of these, `right` (whether each is a correct one), `surprisals` of the correct ones in bits, `relations`
        and `titles` (what each question asks for, and about what), and the number of the model's `parameters`.
    """

    def answer(model: Any, tokenizer: Any) -> Record:
        known = [*relations, *read_relations(model.config.relations)]
        asked = load_questions(test_file, answers=True, known=known)
        data = EvaluationData({TEST: asked})
        for warning in check_questions(data, model, tokenizer, model.config.max_answer_length, ()):
            print(warning)
        questions = data.questions
        answered = answer_questions(questions, model, tokenizer)
        return {
            "answers": [each.answer for each in answered],
            "probabilities": [each.probability for each in answered],
            "right": ScoredQuestions(answered).correct.tolist(),
            "surprisals": [each.surprisal for each in answered],
            "relations": [each.relation for each in answered],
            "titles": [each.title for each in answered],
            "parameters": model.num_parameters(),
        }

    # What is kept of earlier versions lacks some of these.
    return ask_once(kept_file, model_dir, {"asked": hash_file(test_file), "columns": 6}, answer)


def weigh_candidates(model_dir: Path, test_file: Path, kept_file: Path, world: World) -> Record:
    """Return the `surprisals` of correct answers in bits, and the `relations` and `titles` of these, for what people's documents tell.

    A probability is that which the model gives the answer, divided by the sum over all that the world draws such answers from.
    """

    def weigh(model: Any, tokenizer: Any) -> Record:
        asked = load_questions(test_file, answers=True, known=tuple(world.asked.values()))
        weighed = []
        for name in world.entropy():
            candidates = [*map(str, QUESTIONS[name].candidates(world))]
            rows = asked.rows_of[world.asked[name]]
            for row in tqdm(rows, desc=f"Weighing candidates for {name}", unit="question", disable=None):
                scores = model.compute_log_probs([asked.texts[row]] * len(candidates), candidates, tokenizer)
                own = scores.log_softmax(0)[candidates.index(asked.answers[row])]
                weighed.append((-float(own) / math.log(2), name, asked.titles[row]))
        return pd.DataFrame(weighed, columns=["surprisals", "relations", "titles"]).to_dict("list")

    return ask_once(kept_file, model_dir, {"asked": hash_file(test_file), "columns": 3}, weigh)


def write_results(runs: dict[str, list[Record]], sweep: Sweep, rows: dict[str, Row]) -> None:
    """Write `table.md` and `chart.png`, the best row first, `answers.csv`, `results.csv`, and `curves.csv` of what was asked on the way."""
    runs = dict(sorted(runs.items(), key=lambda item: -count_right(item[1]).accuracy))
    table = [describe_row(rows[name], runs) for name in runs]
    asked_file = next(iter(sweep.files.values())).asked
    counts = [len(run["right"]) for of_row in runs.values() for run in of_row]
    asked = " to ".join(map(str, sorted({min(counts), max(counts)})))
    in_worlds = f" in each of {len(sweep.study.world_seeds)} worlds" if sweep.study.world_seeds else ""
    write_table(sweep.results, table, f"{asked} questions of {asked_file.name}{in_worlds}")
    draw_rows(runs, sweep.results / "chart.png")
    answers = list_answers(runs)
    tables = {"answers": answers, "results": list_results(answers), "curves": list_curves(runs)}
    for name, lines in tables.items():
        if not lines.empty:
            write_file(sweep.results / f"{name}.csv", lines.to_csv(index=False))


def find_output_dir(arguments: SweepArguments) -> Path:
    """Return the folder of a study, which need not exist yet."""
    return check_is_folder_or_new(arguments.output_dir or f"runs/{Path(arguments.study).stem}").resolve()


def prepare_sweep(arguments: SweepArguments, study: Study, rows: dict[str, Row]) -> Sweep:
    """Choose the files to train on and to ask; worlds, and pairs that are held out, are written to the output folder."""
    output_dir = find_output_dir(arguments)
    asked = f"held_out_{study.held_out}" if study.held_out else "training" if study.ask_training else "dev"
    results = output_dir / asked
    files: dict[str, RowFiles] = {}
    if study.world is None:
        data_dir = Path(arguments.data_dir or "").resolve()
        own = RowFiles(data_dir, data_dir / TRAIN_FILE, data_dir / DEV_FILE)
        if study.held_out:
            read = HoldOutArguments(output_dir=str(results), questions_file=str(own.train), people=0, overwrite=True)
            hold_out(replace(read, pairs=study.held_out))
            own = replace(own, train=results / TRAIN_FILE, asked=results / CALIBRATION_FILE)
        files = dict.fromkeys(rows, own)
    else:
        for name, row in rows.items():
            # Rows of the same world share a folder, which the numbers name that differ from the defaults.
            given = {each: getattr(row.world, each) for each in list_given(row.world, asdict(row.world))}
            numbers = [f"{each}_{value}" for each, value in given.items() if isinstance(value, int | float)]
            world_dir = output_dir / "_".join(["world", *numbers])
            relations = tuple(row.world.asked.values())
            if all(each.data_dir != world_dir for each in files.values()):
                kept = world_dir / RELATIONS_FILE
                if kept.is_file() and kept.read_text(encoding="utf-8") != row.world.format_relations():
                    raise BadInput(f"{world_dir}: holds a world that is asked otherwise; give another --output_dir.")
                row.world.write(world_dir, overwrite=True)
            files[name] = RowFiles(world_dir, world_dir / TRAIN_FILE, world_dir / DEV_FILE, relations)
    if study.ask_training:
        files = {name: replace(each, asked=each.train) for name, each in files.items()}
    sweep = Sweep(arguments, study, output_dir, results, files)
    for row in rows.values():
        if row.edits:
            write_file(sweep.find_edits(row), "".join("\t".join(edit) + "\n" for edit in row.edits))
    return sweep


def run_study(study: str | os.PathLike | Mapping[str, Any], **options: Any) -> pd.DataFrame:
    """Train and ask the models of a study; return what `list_results` does.

        run_study("inverse", seeds=[43], output_dir="runs/inverse")
        run_study({"world": {}, "reads_questions": True, "pretrain": {"recipe": "quickstart"}, "rows": {"mine": {}}})

    Args:
        study: Its name or file, or what its file would hold, as in `Study`.
        options: Fields of `SweepArguments`.

    Raises:
        BadInput: an option, the study or a file is not what it should be, or a training could not go on.
    """
    content = study if isinstance(study, Mapping) else None
    arguments = parse_options(SweepArguments, ["study" if content is not None else str(study)], **options)
    return _run(arguments, *load_study(arguments, content))


def _run(arguments: SweepArguments, study: Study, rows: dict[str, Row]) -> pd.DataFrame:
    if model := arguments.model_name_or_path:
        # The last two are what finetuning alone reads: a pretrained model, or without one a vocabulary.
        read = {"questions_file", "model_name_or_path", "vocabulary_file"}
        if not read.isdisjoint(read_record(model).get("data", {})):
            raise BadInput(
                f"{model}: was trained on questions; give a model that has read none, and was not finetuned."
            )
    elif untrained := [
        row.name for row in rows.values() if row.pretrain is None and (row.pairs or row.finetune is None)
    ]:
        raise BadInput(f"{untrained[0]}: begins with a pretrained model; give one with --model_name_or_path.")
    # In each world those of its own; an early table compares all rows, as one seed and one world comes after the other.
    placed = [(row.name, row.place(seed)) for seed in study.world_seeds or () for row in rows.values()]
    placed = placed or list(rows.items())
    in_worlds = [row for _, row in placed]
    with remove_if_refused(find_output_dir(arguments)):
        sweep = prepare_sweep(arguments, study, {row.name: row for row in in_worlds})
        sweep.check_rows(in_worlds)
        sweep.check_questions(in_worlds)
        # Builds each model, and so refuses sizes that do not fit.
        sweep.say_minutes(in_worlds)
    runs: dict[str, list[Record]] = {name: [] for name in rows}
    plan, processes = list(product(study.seeds, placed)), arguments.processes
    threads = max(1, count_cores() // processes) if processes > 1 else None
    trainings = [partial(sweep.train, row, seed, threads) for seed, (_, row) in plan] if threads else []
    # The processes that train import what Python has imported here.
    take_imports([])
    with train_ahead(processes, trainings) as trained:
        for seed, (name, row) in tqdm(plan, desc="Models", unit="model", disable=None):
            runs[name].append(sweep.run(row, seed, next(trained, None)))
            write_results({name: of_row for name, of_row in runs.items() if of_row}, sweep, rows)
    return list_results(list_answers(runs))


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(SweepArguments, argv)
    _run(arguments, *load_study(arguments))
