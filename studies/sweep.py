"""A study: a model is trained for each row of a YAML file and each seed, and asked.

    python -m studies positions --data_dir data
    python -m studies knowledge --data_dir data --rows "AdamW" "no cues" --seeds 42 43
    python -m studies mine.yaml --data_dir data --output_dir runs/mine

The YAML files beside this one are the studies that come with PosGPT; `Study` and `Row` say what such a file may hold. Finished
trainings are kept and interrupted ones are resumed, so the same command can be given again, also with more seeds. The table
and the chart are of the rows and seeds of one command, and are written after each of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tqdm import tqdm

from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import (
    CORPUS_FILE,
    DEV_FILE,
    TRAIN_FILE,
    check_is_folder_or_new,
    hash_file,
    load_yaml,
    make_file_name,
    write_atomically,
)
from data_scripts.hold_out import CALIBRATION_FILE, HoldOutArguments, hold_out
from data_scripts.options import Range, option, parse_options, shorten_error
from data_scripts.questions import load_questions
from posgpt.compare import load_record
from posgpt.evaluation.scoring import Proportion
from posgpt.plots import GREY, make_figure, save_picture
from posgpt.training.architecture import CHOICES
from posgpt.training.checkpoints import WEIGHTS_FILE
from studies.recall import grade_answers, load_on_device, measure_model, read_objective
from studies.tables import format_known, write_table
from studies.training_runs import (
    Record,
    count_rows_per_step,
    estimate_minutes,
    keep_result,
    time_training,
    train,
)

FOLDER = Path(__file__).parent
STAGES = {"pretrain": "pretraining", "finetune": "finetuning"}


@dataclass
class SweepArguments:
    """What to train, on which data. What a study's rows say themselves takes precedence."""

    study: str = option("A study that comes with PosGPT, or a YAML file of your own.", positional=True)
    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str | None = option("Folder for models, table and chart (default: runs/STUDY).", default=None)
    rows: list[str] | None = option("Rows to train (default: all).", default=None)
    seeds: Annotated[list[int] | None, Range(0)] = option(
        "One training of each row per seed (default: the study's).", default=None
    )
    held_out: Annotated[int | None, Range(0)] = option(
        "Ask about this many training pairs, held out; 0: about dev (default: as the study says).", default=None
    )
    recipe: str | None = option("The rows' recipe.", default=None)
    position_embedding_type: str | None = option("The rows' positions.", default=None)
    max_steps: Annotated[int | None, Range(1)] = option("Optimizer steps of each training.", default=None)
    model_name_or_path: str | None = option(
        "What rows without pretraining begin with, pretrained without questions.", default=None
    )
    micro_batch_size: Annotated[int | None, Range(1)] = option(
        "The largest batch of a training step; larger steps are made of several. Give the same in every command.",
        default=None,
    )


@dataclass(frozen=True)
class Row:
    """A row of a study.

    Args:
        pretrain, finetune: The recipe and the options of each stage; None: the row does not have it.
        base: The row before it whose options it has, besides its own, and the best of whose `search`.
        search: An option of pretraining, and the values that are tried with the first seed; the best one goes on.
        pairs: How many training pairs it is finetuned on, drawn by the seed (default: all).
        public: What others have reached: `median`, `quartiles`, `best`, in %, and their number `n`.
    """

    name: str
    pretrain: dict[str, Any] | None = None
    finetune: dict[str, Any] | None = None
    base: str | None = None
    search: dict[str, list[Any]] = field(default_factory=dict)
    pairs: int | None = None
    public: dict[str, Any] | None = None

    def derive(self, base: "Row") -> "Row":
        """Return the row with the options of another, and its own on top of them."""
        stages = {stage: getattr(base, stage) for stage in STAGES if getattr(base, stage) is not None}
        own = {stage: stages[stage] | (getattr(self, stage) or {}) for stage in stages}
        return replace(self, **own)

    def list_variants(self) -> list["Row"]:
        """Return the row with each of the values that are tried, or itself without any."""
        return [
            replace(self, name=f"{self.name} {value:g}", pretrain=(self.pretrain or {}) | {name: value}, search={})
            for name, values in self.search.items()
            for value in values
        ] or [self]


@dataclass(frozen=True)
class Study:
    """What a study's YAML file holds.

    Args:
        rows: What each `Row` holds, by name; or an option of the architecture, each of whose choices is a row.
        pretrain, finetune: What rows share. A row's own options come on top; a row's `finetune: null` leaves the stage out.
        reads_questions: Whether pretraining reads the training questions, too.
        recall: Whether to measure what pretrained models recall in the words that they have read (studies/recall.py).
        held_out: How many training pairs are held out to ask about; 0: dev is asked.
        seeds: One training of each row per seed.
    """

    rows: Any
    pretrain: dict[str, Any] | None = None
    finetune: dict[str, Any] | None = None
    reads_questions: bool = False
    recall: bool = False
    held_out: int = 0
    seeds: list[int] = field(default_factory=lambda: [42])

    def build_rows(self) -> dict[str, Row]:
        """Return the rows by their names."""
        rows: dict[str, Row] = {}
        entries = self.rows
        if isinstance(entries, str):
            entries = {choice: {"pretrain": {entries: choice}} for choice in CHOICES[entries]}
        shared = Row("", self.pretrain, self.finetune)
        for name, entry in entries.items():
            row = Row(name, **entry)
            derived = row.derive(rows[row.base] if row.base else shared)
            left_out: dict[str, Any] = {stage: None for stage in STAGES if entry.get(stage, ...) is None}
            rows[name] = replace(derived, **left_out)
        return rows


def load_study(arguments: SweepArguments) -> tuple[Study, dict[str, Row]]:
    """Return a study and those of its rows that are wanted, with the rows that these are based on.

    Raises:
        BadInput: there is no such study or row, its file is not one, or its rows share nothing that an option could change.
    """
    name = arguments.study
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if path.parent == FOLDER and not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise BadInput(f"there is no study {name!r}; choose one of {known}, or give a YAML file.")
    try:
        study = Study(**load_yaml(path, "study"))
        shared = "pretrain" if study.pretrain else "finetune"
        changed = {
            option: value
            for option in ("recipe", "position_embedding_type", "max_steps")
            if (value := getattr(arguments, option)) is not None
        }
        if changed and not getattr(study, shared):
            raise BadInput(
                f"{path}: its rows share no options that --{next(iter(changed))} could change; copy the file."
            )
        if changed:
            study = replace(study, **{shared: getattr(study, shared) | changed})
        rows = study.build_rows()
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(
            f"{path}: not a study: {shorten_error(error)}; studies/sweep.py says what it may hold."
        ) from None
    given: dict[str, Any] = {"seeds": arguments.seeds, "held_out": arguments.held_out}
    study = replace(study, **{option: value for option, value in given.items() if value is not None})
    wanted = set(arguments.rows or rows)
    if unknown := wanted - rows.keys():
        raise BadInput(f"{min(unknown)!r} is not a row of {path.name}; there are: {', '.join(rows)}.")
    # A base is before the row that has it.
    for row in reversed(rows.values()):
        wanted |= {row.base} if row.name in wanted and row.base and rows[row.base].search else set()
    return study, {name: row for name, row in rows.items() if name in wanted}


@dataclass(frozen=True)
class Sweep:
    """What all trainings of a study have in common.

    Args:
        results: Folder for table and chart, and for what depends on whom the models are asked about.
        train_file, asked_file: The pairs that are trained on, and those that are asked.
    """

    arguments: SweepArguments
    study: Study
    output_dir: Path
    results: Path
    train_file: Path
    asked_file: Path

    @property
    def corpus_file(self) -> Path:
        return Path(self.arguments.data_dir).resolve() / CORPUS_FILE

    def find_folder(self, row: Row, seed: int, stage: str) -> Path:
        """Return where a model is. One that has read documents alone does not depend on who is held out."""
        folder = self.output_dir if stage == "pretrain" and not self.study.reads_questions else self.results
        return folder / f"{make_file_name(row.name)}_{seed}" / stage

    def list_trainings(self, row: Row, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield stage, section of the recipe and options of each training of a row."""
        start = self.arguments.model_name_or_path
        if row.pretrain is not None:
            files = {"train_file": self.corpus_file}
            if self.study.reads_questions:
                files["questions_file"] = self.train_file
            yield "pretrain", "pretrain", self.complete("pretrain", files | {"seed": seed} | row.pretrain)
            start = str(self.find_folder(row, seed, "pretrain"))
        if row.finetune is not None:
            section = "finetune" if start else "finetune_from_scratch"
            source = {"model_name_or_path": Path(start).resolve()} if start else {"vocabulary_file": self.corpus_file}
            drawn = self.find_folder(row, seed, "finetune").with_name(TRAIN_FILE)
            options = source | {
                "train_file": drawn if row.pairs else self.train_file,
                "seed": seed,
                "eval_strategy": "no",
            }
            yield "finetune", section, self.complete(section, options | row.finetune)

    def complete(self, section: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return options without those that are None, and with those that split a training step as the command line says.

        Raises:
            BadInput: the recipe's batch is not a multiple of --micro_batch_size.
        """
        options = {name: value for name, value in options.items() if value is not None}
        size, micro = count_rows_per_step(section, options), self.arguments.micro_batch_size
        if micro is None or size <= micro:
            return options
        if size % micro:
            raise BadInput(
                f"--micro_batch_size {micro} does not divide {options['recipe']}'s {size}; choose a divisor."
            )
        return options | {"per_device_train_batch_size": micro, "gradient_accumulation_steps": size // micro}

    def say_minutes(self, plan: list[tuple[Row, int]]) -> None:
        """Say how many trainings are to come and how long they take, by a few steps with each recipe.

        What begins with a model that is yet to be pretrained, or with pairs that are yet to be drawn, takes little beside them.
        """
        count, minutes, timed = 0, 0.0, dict[tuple[str, str], tuple[float, float]]()
        for row, seed in plan:
            for number, (stage, section, options) in enumerate(self.list_trainings(row, seed)):
                if (self.find_folder(row, seed, stage) / WEIGHTS_FILE).is_file():
                    continue
                count, key = count + 1, (section, options["recipe"])
                if number == 0 and not row.pairs:
                    if key not in timed:
                        timed[key] = time_training(f"{row.name}, seed {seed}", section, options)
                    minutes += estimate_minutes(section, options, *timed[key])
        if count:
            print(f"\n{count} trainings to come{f', about {minutes:,.0f} minutes' if minutes else ''}.", flush=True)

    def draw_pairs(self, row: Row, seed: int) -> None:
        """Write the pairs that a row is finetuned on, if it has a number of them.

        Raises:
            BadInput: there are fewer.
        """
        if row.pairs is None:
            return
        pairs = load_questions(self.train_file, answers=True).rows
        if row.pairs > len(pairs):
            raise BadInput(f"{row.name}: there are {len(pairs):,} pairs to draw from; leave the row out.")
        # The draws of one seed contain each other.
        chosen = pairs.select(sorted(np.random.default_rng(seed).permutation(len(pairs))[: row.pairs].tolist()))
        with write_atomically(self.find_folder(row, seed, "finetune").with_name(TRAIN_FILE)) as file:
            file.writelines(f"{pair['question']}\t{pair['answer']}\n" for pair in chosen)

    def run(self, row: Row, seed: int) -> Record:
        """Train and ask a row's model, unless that is done.

        Returns:
            `right` (whether each question is answered exactly), `parameters`, what `train` returns of each stage by its
            name, and `measures`, the right ones and all of each as `measure_recall` counts them.
        """
        self.draw_pairs(row, seed)
        record: Record = {"measures": {}}
        model = Path(self.arguments.model_name_or_path or "")
        for stage, section, options in self.list_trainings(row, seed):
            model = self.find_folder(row, seed, stage)
            record[stage] = train(f"{row.name}, seed {seed}", section, options, model)
            if stage == "pretrain" and self.study.recall:
                record["measures"] = self.measure_recall(model, options)
        return record | ask(model, self.asked_file, self.results / f"{make_file_name(row.name)}_{seed}" / "asked.json")

    def measure_recall(self, model: Path, options: dict[str, Any]) -> dict[str, tuple[int, int]]:
        """Count what a pretrained model recalls about those whose questions it has not read, and knows of those it has."""
        reads_questions = self.study.reads_questions
        people_file = self.asked_file if reads_questions else Path(self.arguments.data_dir) / TRAIN_FILE

        def compute() -> Record:
            people = load_questions(people_file, answers=True)
            right = measure_model(str(model), self.corpus_file, people, read_objective(**options))
            if reads_questions:
                trained = load_questions(self.train_file, answers=True)
                few = slice(None, None, max(len(trained) // 200, 1))
                asked = trained.texts[few], trained.answers[few]
                right["training questions"] = grade_answers(*load_on_device(str(model)), *asked)
            return {measure: [int(each.sum()), len(each)] for measure, each in right.items()}

        key = {"people": hash_file(people_file), "model": hash_file(model / WEIGHTS_FILE)}
        return keep_result(model / "recall.json", key, compute)


def ask(model_dir: Path, test_file: Path, kept_file: Path) -> Record:
    """Ask the model in a folder the questions of a TSV, unless that is done.

    Returns:
        `right` (whether each question is answered exactly) and `parameters`, their number.
    """

    def compute() -> Record:
        model, tokenizer = load_on_device(str(model_dir))
        test = load_questions(test_file, answers=True)
        is_right = grade_answers(model, tokenizer, test.texts, test.answers)
        return {"right": is_right.tolist(), "parameters": model.num_parameters()}

    key = {"asked": hash_file(test_file), "model": hash_file(model_dir / WEIGHTS_FILE)}
    return keep_result(kept_file, key, compute)


def average_right(runs: list[Record]) -> tuple[float, Proportion]:
    """Return the mean accuracy of runs, and the right answers of one, for the interval.

    More seeds do not narrow it, for all ask the same people.
    """
    accuracy, people = float(np.mean([run["right"] for run in runs])), len(runs[0]["right"])
    return accuracy, Proportion(round(accuracy * people), people)


def compare_rows(best: list[Record], runs: list[Record]) -> tuple[float, float]:
    """Compute how much less is right in `runs` than in `best`, and that difference's standard error, 0 to 1 each.

    All are asked the same people, some of whom are hard for every model and some easy. So the difference is taken person by
    person, which tells more rows apart than two intervals do.
    """
    differences = np.mean([run["right"] for run in best], axis=0) - np.mean([run["right"] for run in runs], axis=0)
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def describe_row(row: Row, runs: list[Record], best: list[Record]) -> dict[str, str]:
    """Return a row's cells: means over the seeds; characters, minutes and counts are the first one's."""
    first, (accuracy, share) = runs[0], average_right(runs)
    less, error = (100 * value for value in compare_rows(best, runs))
    stages = [stage for stage in STAGES if stage in first]
    cells = {
        "row": row.name,
        "parameters": f"{first['parameters']:,}",
        "answered": f"**{accuracy:.1%}**",
        "95 % interval": share.format_interval(),
        "points behind the best": "" if runs is best else f"{less:.1f} ± {error:.1f}",
        "each seed": ", ".join(f"{np.mean(run['right']):.1%}" for run in runs),
    }
    if row.public:
        median, best_one, number = (row.public[name] for name in ("median", "best", "n"))
        quartiles = "-".join(f"{quartile:.1f}" for quartile in row.public["quartiles"])
        cells["public: median (quartiles), best, n"] = f"{median} ({quartiles}), {best_one}, {number}"
    for stage in stages:
        cells[f"last loss, {STAGES[stage]}"] = f"{np.mean([run[stage]['losses'][-1][1] for run in runs]):.3f}"
    for measure in first["measures"]:
        right, total = (sum(run["measures"][measure][part] for run in runs) for part in (0, 1))
        cells[f"pretrained: {measure}"] = f"{right / max(total, 1):.1%}"
    if stages:
        cells["characters read"] = f"{sum(first[stage]['characters'] for stage in stages) / 1e6:.1f} M"
        cells["minutes"] = format_known(sum(first[stage]["minutes"] for stage in stages), ".0f")
        cells["memory"] = f"{max(run[stage]['memory'] for run in runs for stage in stages):,.0f} MiB"
    return cells


def draw_rows(runs: dict[str, list[Record]], path: Path) -> None:
    """Save a PNG: each row's accuracy with its interval and seeds, and the training loss of all runs by stage."""
    stages = [stage for stage in STAGES if any(stage in of_row[0] for of_row in runs.values())]
    figure, panels = make_figure(6 + 4.5 * len(stages), 1.6 + 0.35 * max(len(runs), 6), columns=1 + len(stages))
    dots, *curves = np.atleast_1d(panels)
    for number, (name, of_row) in enumerate(runs.items()):
        color, (accuracy, share) = f"C{number % 10}", average_right(of_row)
        low, high = share.interval
        dots.plot([100 * low, 100 * high], [name, name], color=color, lw=2, alpha=0.6)
        dots.plot([100 * np.mean(run["right"]) for run in of_row], [name] * len(of_row), "k.", markersize=4)
        dots.plot(100 * accuracy, name, "o", color=color)
        dots.annotate(f"{100 * accuracy:.1f}", (100 * high, name), (6, 0), textcoords="offset points", va="center")
        if "recalled as read" in of_row[0]["measures"]:
            right, total = of_row[0]["measures"]["recalled as read"]
            dots.plot(100 * right / max(total, 1), name, "D", color=GREY, zorder=0)
        for stage, axes in zip(stages, curves, strict=True):
            for run in (run for run in of_row if stage in run):
                axes.plot(*zip(*run[stage]["losses"], strict=True), color=color, lw=1)
    has_recall = any("recalled as read" in of_row[0]["measures"] for of_row in runs.values())
    dots.set_xlabel("answered, %; small dots: seeds" + "; grey: recalled as read, before finetuning" * has_recall)
    dots.margins(x=0.12)
    dots.invert_yaxis()
    dots.grid(axis="x", alpha=0.3)
    for stage, axes in zip(stages, curves, strict=True):
        axes.set(title=STAGES[stage], yscale="log", xlabel="optimizer step", ylabel="loss (nats per character)")
    save_picture(figure, path)


def write_results(rows: dict[str, Row], runs: dict[str, list[Record]], sweep: Sweep) -> None:
    """Write `table.md` and `chart.png`, the best row first."""
    runs = dict(sorted(runs.items(), key=lambda item: -average_right(item[1])[0]))
    best = next(iter(runs.values()))
    table = [describe_row(rows[name], of_row, best) for name, of_row in runs.items()]
    write_table(sweep.results, table, f"{len(best[0]['right'])} questions of {sweep.asked_file.name}")
    draw_rows(runs, sweep.results / "chart.png")


def check_has_read_no_questions(model: str) -> None:
    """Check that a model was pretrained without questions and not finetuned, if its record of the training is there.

    Raises:
        BadInput: it was not, and would know the pairs that are drawn or held out.
    """
    # The last two are what finetuning alone reads: a pretrained model, or without one a vocabulary.
    read = {("data", name) for name in ("questions_file", "model_name_or_path", "vocabulary_file")}
    if not read.isdisjoint(load_record(model)):
        raise BadInput(
            f"{model}: was trained on questions, so that there is nothing to learn from few of them; give a model that was"
            " pretrained without --questions_file and not finetuned."
        )


def prepare_sweep(arguments: SweepArguments, study: Study) -> Sweep:
    """Choose the files to train on and to ask; pairs that are held out are written to the results' folder."""
    data_dir = Path(arguments.data_dir).resolve()
    folder = arguments.output_dir or f"runs/{Path(arguments.study).stem}"
    output_dir = check_is_folder_or_new(folder).resolve()
    if not study.held_out:
        return Sweep(arguments, study, output_dir, output_dir / "dev", data_dir / TRAIN_FILE, data_dir / DEV_FILE)
    results = output_dir / f"held_out_{study.held_out}"
    questions_file = str(data_dir / TRAIN_FILE)
    hold_out(
        HoldOutArguments(
            output_dir=str(results), questions_file=questions_file, pairs=study.held_out, people=0, overwrite=True
        )
    )
    return Sweep(arguments, study, output_dir, results, results / TRAIN_FILE, results / CALIBRATION_FILE)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(SweepArguments, argv)
    study, rows = load_study(arguments)
    if arguments.model_name_or_path:
        check_has_read_no_questions(arguments.model_name_or_path)
    elif untrained := [row.name for row in rows.values() if row.pairs or row.pretrain is row.finetune is None]:
        raise BadInput(f"{untrained[0]}: begins with a pretrained model; give one with --model_name_or_path.")
    sweep = prepare_sweep(arguments, study)
    first, *later = study.seeds
    variants = [variant for row in rows.values() for variant in row.list_variants()]
    plan = [(row, first) for row in variants] + [(row, seed) for seed in later for row in rows.values()]
    sweep.say_minutes(plan)
    known, runs, chosen = {row.name: row for row in variants}, dict[str, list[Record]](), dict[str, Row]()
    with tqdm(total=len(plan), desc="Models", unit="model", disable=None) as bar:

        def fill(row: Row, seed: int) -> None:
            bar.set_postfix_str(f"{row.name}, seed {seed}")
            runs.setdefault(row.name, []).append(sweep.run(row, seed))
            known[row.name] = row
            write_results(known, runs, sweep)
            bar.update()

        for row in rows.values():
            row = row.derive(chosen[row.base]) if row.base in chosen else row
            for variant in row.list_variants():
                fill(variant, first)
            # The most right answers, then the lowest loss.
            chosen[row.name] = max(row.list_variants(), key=lambda variant: rank_run(runs[variant.name][0]))
        # One seed after the other, so that an early table compares all rows.
        for seed in later:
            for row in chosen.values():
                fill(row, seed)


def rank_run(run: Record) -> tuple[float, float]:
    """Return what the best run has the most of: right answers, then minus its last loss of pretraining."""
    return float(np.mean(run["right"])), -run["pretrain"]["losses"][-1][1] if "pretrain" in run else 0.0


if __name__ == "__main__":
    main()
