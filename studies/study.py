"""What a study's YAML file holds: what its rows share, and the rows.

The files beside this one are the studies that come with PosGPT.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from data_scripts.errors import BadInput, prefix_bad_input, reraise_as_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, load_yaml, make_file_name
from data_scripts.options import Range, check_options, option, parse_options
from data_scripts.synthetic_world import World
from posgpt.recipe_parser import overlay
from posgpt.training.architecture import CHOICES

FOLDER = Path(__file__).parent
STAGES = {"pretrain": "pretraining", "finetune": "finetuning"}


@dataclass
class SweepArguments:
    """What to train, on which data. What a study's rows say themselves takes precedence."""

    study: str = option("A study that comes with PosGPT, or a YAML file of your own.", positional=True)
    data_dir: str | None = option(
        f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}; a study of a fictional world writes its own.",
        default=None,
    )
    output_dir: str | None = option("Folder for models, table and chart (default: runs/STUDY).", default=None)
    rows: list[str] | None = option("Rows to train (default: all).", default=None)
    seeds: Annotated[list[int] | None, Range(0)] = option(
        "One run of each row per seed (default: the study's).", default=None
    )
    world_seeds: Annotated[list[int] | None, Range(0)] = option(
        "Train each row in the worlds of these seeds, and ask their people (default: the study's).", default=None
    )
    held_out: Annotated[int | None, Range(0)] = option(
        "Ask about this many training pairs, held out; 0: about dev (default: as the study says).", default=None
    )
    recipe: str | None = option("The recipe of rows that name none themselves.", default=None)
    position_embedding_type: str | None = option("The positions of rows that name none themselves.", default=None)
    max_steps: Annotated[int | None, Range(1)] = option(
        "Optimizer steps of the runs of rows that say nothing of their length.", default=None
    )
    model_name_or_path: str | None = option(
        "What rows without pretraining begin with, pretrained without questions.", default=None
    )
    processes: Annotated[int, Range(1)] = option(
        "Trainings at once: each has its share of the CPU cores, and a log.txt in its folder. They share a GPU.",
        default=1,
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
        base: The row before it whose options it has, besides its own.
        pairs: How many training pairs it is finetuned on, drawn by the seed (default: all).
        world: Options of `posgpt world`, on top of the study's or the base's; in a built row, the world.
        edits: Lines of its `edits_file`: title, words, and what they say instead. Its answers about others are compared with its base's.
        published: What others have measured in its place, for the table.
    """

    name: str
    pretrain: dict[str, Any] | None = None
    finetune: dict[str, Any] | None = None
    base: str | None = None
    pairs: int | None = None
    world: Any = None
    edits: list[list[str]] | None = None
    published: str = ""

    def place(self, seed: int) -> "Row":
        """Return the row in the world of a seed."""
        return replace(self, name=f"{self.name}, world {seed}", world=replace(self.world, seed=seed))

    def check(self) -> None:
        """Raise TypeError for a name that is no text, no pairs to draw, what is no edit, or an edit that is compared with nothing."""
        if not isinstance(self.name, str) or not any(map(str.isalnum, self.name)):
            raise TypeError(f"a row is named {self.name!r}; give it words, in quotes if they are a number")
        if self.pairs is not None and not (isinstance(self.pairs, int) and self.pairs > 0):
            raise TypeError(
                f"pairs of {self.name!r} is {self.pairs!r}; give at least 1, or leave the row's finetune out: null"
            )
        lines = self.edits or []
        if not isinstance(lines, list) or any(
            not isinstance(line, list) or [*map(type, line)] != [str, str, str] for line in lines
        ):
            raise TypeError(f"the edits of {self.name!r} are no lists of three texts each: title, words, other words")
        if lines and self.base is None:
            raise TypeError(f"{self.name!r} has edits and no base to compare it with")


@dataclass(frozen=True)
class Study:
    """What a study's YAML file holds.

    Args:
        rows: What each `Row` holds, by name; or an option of the architecture, each of whose choices is a row.
        pretrain, finetune: What rows share. A row's own options come on top; a row's `finetune: null` leaves the stage out.
        reads_questions: Whether pretraining reads the training questions, too.
        recall: Whether to measure what pretrained models recall in the words that they have read (studies/recall.py).
        candidates: Whether to measure bits among all that a world draws answers from, too: each is scored for each question.
        strangers: About how many people to ask of whom nothing is told (studies/honesty.py).
        held_out: How many training pairs are held out to ask about; 0: dev is asked.
        ask_training: Whether the training questions are asked instead: what models have memorized.
        ask_every: Ask the questions every so many steps of pretraining, for curves; None: only after it.
        seeds: One training of each row per seed.
        world: Options of `posgpt world`, which writes what is read and asked (dev); None: `--data_dir` has it.
        world_seeds: Each row is trained in the worlds of these seeds, and the people of all are asked; None: in that of `world`.
    """

    rows: Any
    pretrain: dict[str, Any] | None = None
    finetune: dict[str, Any] | None = None
    reads_questions: bool = False
    recall: bool = False
    candidates: bool = False
    strangers: Annotated[int, Range(0)] = 0
    held_out: Annotated[int, Range(0)] = 0
    ask_training: bool = False
    ask_every: Annotated[int | None, Range(1)] = None
    seeds: Annotated[list[int], Range(0)] = field(default_factory=lambda: [42])
    world: dict[str, Any] | None = None
    world_seeds: Annotated[list[int] | None, Range(0)] = None

    def __post_init__(self):
        worlds = [0] if self.world_seeds is None else self.world_seeds
        for name, seeds in {"seeds": self.seeds, "world_seeds": worlds}.items():
            # `true` is an int, too.
            if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
                raise TypeError(f"{name} is {seeds!r}, and has to be a list of whole numbers")
            if not seeds or len(set(seeds)) < len(seeds):
                raise BadInput(
                    f"{name} is {seeds!r}, and has to have at least one, and each once; give other numbers."
                )
        for name in ("pretrain", "finetune", "world"):
            if not isinstance(getattr(self, name), dict | None):
                raise TypeError(f"{name} is {getattr(self, name)!r}, and has to be options by their names")

    def build_rows(self) -> dict[str, Row]:
        """Return the rows by their names."""
        rows: dict[str, Row] = {}
        entries = self.rows
        if not entries or not isinstance(entries, str | dict):
            raise TypeError("rows has to give at least one row below its name")
        if isinstance(entries, str) and entries not in CHOICES:
            raise TypeError(f"rows is {entries!r}; give rows below their names, or one of {', '.join(CHOICES)}")
        if isinstance(entries, str):
            entries = {choice: {"pretrain": {entries: choice}} for choice in CHOICES[entries]}
        folders: dict[str, str] = {}
        for name, entry in entries.items():
            # `NAME:` with nothing below it is a row that changes nothing.
            entry = {} if entry is None else entry
            if not isinstance(entry, dict):
                raise TypeError(f"the row {name!r} is {entry!r}, and has to be what it changes, below its name")
            check_keys(Row, entry, f"the row {name!r}: ")
            row = Row(name, **entry)
            row.check()
            # A row's folder and files are named after it.
            if (other := folders.setdefault(make_file_name(name), name)) != name:
                raise TypeError(f"{name!r} and {other!r} differ in nothing but marks; give one of them another name")
            if row.base and row.base not in rows:
                raise TypeError(f"the base of {name!r}, {row.base!r}, is no row above it")
            base, stages = rows[row.base] if row.base else self, dict[str, Any]()
            for stage in STAGES:
                own, below = entry.get(stage, getattr(base, stage)), getattr(base, stage) or {}
                if not isinstance(own, dict | None):
                    raise TypeError(f"{stage} of {name!r} is {own!r}, and has to be options by their names")
                # A row's `null` leaves out the stage of its base.
                stages[stage] = None if own is None else overlay(below, own)
                if own is not None and not stages[stage].get("recipe"):
                    raise TypeError(f"{stage} of {name!r} names no recipe")
            if row.base and "pairs" not in entry and stages["finetune"] is not None:
                row = replace(row, pairs=rows[row.base].pairs)
            if row.pairs and stages["finetune"] is None:
                raise TypeError(f"{name!r} has pairs, which finetuning alone reads")
            if row.edits and (row.world or stages["pretrain"] is None or stages["finetune"] is not None):
                raise TypeError(f"{name!r} has edits, which pretraining alone reads, in its base's world")
            if self.world_seeds and (row.edits or "seed" in (row.world or {})):
                raise TypeError(f"{name!r} has edits or a seed, which are of one world, and world_seeds has several")
            if self.world is not None:
                below = asdict(rows[row.base].world) if row.base else self.world
                with prefix_bad_input(f"the world of {name!r}"):
                    row = replace(row, world=parse_options(World, [], **below | (row.world or {})))
                    # Refuses more strangers than there are names.
                    replace(row.world, strangers=row.world.strangers + self.strangers)
            rows[name] = replace(row, **stages)
        return rows


def check_keys(kind: type, content: Mapping[str, Any], where: str = "") -> None:
    """Raise TypeError for what is no field of a dataclass."""
    known = [each.name for each in fields(kind) if each.name != "name"]
    for key in content:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            raise TypeError(
                f"{where}{key!r} is none of {', '.join(known)}" + (f"; did you mean {near[0]!r}?" if near else "")
            )


def load_study(arguments: SweepArguments, content: Mapping[str, Any] | None = None) -> tuple[Study, dict[str, Row]]:
    """Return a study, from its file unless its `content` is given, and those of its rows that are wanted.

    Raises:
        BadInput: there is no such study or row, its file is not one, its rows share nothing that an option could change, or their worlds
            are not asked the same.
    """
    name = arguments.study
    path = Path(name) if content is not None or name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if content is None and path.parent == FOLDER and not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise BadInput(f"there is no study {name!r}; choose one of {known}, or give a YAML file.")
    given = {option: value for option, value in vars(arguments).items() if value is not None}
    options = ("recipe", "position_embedding_type", "max_steps")
    changed: dict[str, Any] = {option: given[option] for option in options if option in given}
    fix = "studies/study.py says what it may hold."
    with reraise_as_bad_input(f"{path}: not a study", fix, TypeError, KeyError, AttributeError):
        content = load_yaml(path, "study") if content is None else content
        if not isinstance(content, Mapping):
            raise TypeError(f"it is {content!r}, and has to be rows and what they share, by their names")
        check_keys(Study, content)
        study = Study(**content)
        shared = "pretrain" if study.pretrain else "finetune"
        if changed:
            if not getattr(study, shared):
                raise BadInput(f"{path}: its rows share no options that --{min(changed)} could change; copy the file.")
            options_of_all: dict[str, Any] = {shared: overlay(getattr(study, shared), changed)}
            study = replace(study, **options_of_all)
        of_study = ("seeds", "world_seeds", "held_out")
        study = replace(study, **{option: given[option] for option in of_study if option in given})
        check_options(study)
        rows = study.build_rows()
        if all(row.pretrain is None for row in rows.values()):
            if unread := [each for each in ("reads_questions", "ask_every", "recall") if getattr(study, each)]:
                raise BadInput(f"{path}: {unread[0]} is for rows that pretrain, and none does; leave it out.")
        fewer = {"held_out": study.held_out, "pairs": any(row.pairs for row in rows.values())}
        if study.ask_training and (left_out := [name for name, given in fewer.items() if given]):
            raise BadInput(f"{path}: ask_training asks what is trained on; leave {left_out[0]} out.")
        if study.world is None:
            of_a_world = ("candidates", "strangers", "world_seeds")
            if measure := next((name for name in of_a_world if getattr(study, name)), None):
                raise BadInput(f"{path}: {measure} are a world's; give the study one, or leave {measure} out.")
            if arguments.data_dir is None or any(row.world is not None for row in rows.values()):
                raise BadInput(f"{path}: has no world for all rows; give one, or --data_dir and no world.")
        elif arguments.data_dir is not None or study.held_out:
            raise BadInput(f"{path}: writes a world and its dev of its own; leave --data_dir and --held_out out.")
        elif study.ask_training and any(row.world.strangers for row in rows.values()):
            raise BadInput(f"{path}: ask_training also asks about the world's strangers; leave strangers out.")
        elif len({(*row.world.asked, row.world.language) for row in rows.values()}) > 1:
            raise BadInput(
                f"{path}: its worlds differ in what they are asked, or in language; make it several studies."
            )
    wanted = set(arguments.rows or rows)
    if unknown := wanted - rows.keys():
        raise BadInput(f"{min(unknown)!r} is not a row of {path.name}; there are: {', '.join(rows)}.")
    for row in rows.values():
        if row.name in wanted and row.edits and row.base not in wanted:
            raise BadInput(f"--rows: {row.name!r} is compared with {row.base!r}; name both.")
    rows = {name: row for name, row in rows.items() if name in wanted}
    for name, value in changed.items():
        if all((getattr(row, shared) or {}).get(name) != value for row in rows.values()):
            raise BadInput(
                f"--{name} changes no row of {path.name}, for each says its own; copy the file and change it there."
            )
    if arguments.model_name_or_path and all(row.pretrain is not None for row in rows.values()):
        raise BadInput(f"--model_name_or_path: each row of {path.name} pretrains its own model; leave it out.")
    return study, rows
