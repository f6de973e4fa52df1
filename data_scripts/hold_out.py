"""Hold people out of a task's data, for judging a model's confidence.

    python -m data_scripts.hold_out --data_dir data --output_dir data_held_out --pairs 300 --people 100

copies the four files of the task, less what is held out of the training pairs: `pairs` of them go to `calibration.tsv`,
with their documents left in the corpus; `people` more go to `unseen.tsv`, and their documents out of the corpus, too.
"""

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from transformers import HfArgumentParser

from data_scripts.birthplaces import load_birthplaces, name_in
from data_scripts.corpus import titles_of
from data_scripts.synthetic_world import CORPUS_FILE, DEV_FILE, TEST_FILE, TRAIN_FILE
from data_scripts.text_files import (
    BadInput,
    bad_input_in_one_line,
    check_at_least,
    check_is_folder_or_new,
    read_lines,
    written_whole,
)

CALIBRATION_FILE, UNSEEN_FILE = "calibration.tsv", "unseen.tsv"


@dataclass
class HoldOutArguments:
    """What to hold out, and where to write what is left."""

    data_dir: str = field(metadata={"help": f"Folder with {CORPUS_FILE} and {TRAIN_FILE}."})
    output_dir: str = field(metadata={"help": "Folder for the files that are left, and the two held out."})
    pairs: int = field(default=300, metadata={"help": "Training pairs for calibration."})
    people: int = field(default=100, metadata={"help": "People to take out of the corpus."})
    seed: int = field(default=0, metadata={"help": "What the draw follows from."})


def hold_out(train_file: Path, output_dir: Path, pairs: int, people: int = 0, seed: int = 0) -> tuple[set[str], int]:
    """Split a TSV of pairs into `birth_places_train.tsv`, `calibration.tsv` and, when `people` is not 0, `unseen.tsv`.

    Returns:
        The names of the people in `unseen.tsv`, and how many pairs `calibration.tsv` has: other pairs about people of such a
        name are dropped.

    Raises:
        BadInput: nothing would be left to train on.
    """
    rows = list(load_birthplaces(train_file, answers=True))
    if pairs + people >= len(rows):
        raise BadInput(f"{train_file} has {len(rows)} pairs; hold out fewer than {pairs} pairs and {people} people.")
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    file_of = dict.fromkeys(order[:pairs], CALIBRATION_FILE) | dict.fromkeys(
        order[pairs : pairs + people], UNSEEN_FILE
    )
    names = {name_in(rows[index]["question"]) for index, name in file_of.items() if name == UNSEEN_FILE}
    num_calibration = 0
    with ExitStack() as stack:
        file_names = [TRAIN_FILE, CALIBRATION_FILE, *([UNSEEN_FILE] if people else [])]
        files = {name: stack.enter_context(written_whole(output_dir / name)) for name in file_names}
        for index, row in enumerate(rows):
            name = file_of.get(index, TRAIN_FILE)
            if name == UNSEEN_FILE or name_in(row["question"]) not in names:
                files[name].write(f"{row['question']}\t{row['place']}\n")
                num_calibration += name == CALIBRATION_FILE
    return names, num_calibration


def main() -> None:
    (arguments,) = HfArgumentParser(HoldOutArguments).parse_args_into_dataclasses(look_for_args_file=False)
    with bad_input_in_one_line():
        check_at_least(0, people=arguments.people, seed=arguments.seed)
        check_at_least(1, pairs=arguments.pairs)
        data_dir, output_dir = Path(arguments.data_dir), check_is_folder_or_new(arguments.output_dir)
        if output_dir.resolve() == data_dir.resolve():
            raise BadInput(f"{output_dir}: this is the data's own folder; give another --output_dir.")
        names, num_calibration = hold_out(
            data_dir / TRAIN_FILE, output_dir, arguments.pairs, arguments.people, arguments.seed
        )
        without = 0
        with written_whole(output_dir / CORPUS_FILE) as corpus:
            for _, line in read_lines(data_dir / CORPUS_FILE, "corpus, a text file with a document a line"):
                if not names.isdisjoint(titles_of(line)):
                    without += 1
                else:
                    corpus.write(line + "\n")
        for name in (DEV_FILE, TEST_FILE):
            if (data_dir / name).is_file():
                shutil.copy(data_dir / name, output_dir / name)
    print(
        f"{output_dir}: {num_calibration} pairs held out for calibration, {arguments.people} people with their"
        f" {without} documents."
    )


if __name__ == "__main__":
    main()
