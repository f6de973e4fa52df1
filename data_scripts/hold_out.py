"""Hold people out of a task's data, for judging a model's confidence.

    posgpt hold-out --data_dir data --output_dir data_held_out --pairs 300 --people 100

copies the four files of the task, less what is held out of the training pairs: `pairs` of them go to `calibration.tsv`,
with their documents left in the corpus; `people` more go to `unseen.tsv`, and their documents out of the corpus, too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from data_scripts.documents import list_titles, read_documents
from data_scripts.errors import BadInput, exit_on_bad_input
from data_scripts.files import check_is_folder_or_new, write_atomically, write_lines
from data_scripts.options import Range, option, parse_options
from data_scripts.questions import load_questions
from data_scripts.synthetic_world import CORPUS_FILE, DEV_FILE, TEST_FILE, TRAIN_FILE

CALIBRATION_FILE, UNSEEN_FILE = "calibration.tsv", "unseen.tsv"


@dataclass
class HoldOutArguments:
    """What to hold out, and where to write what is left."""

    data_dir: str = option(f"Folder with {CORPUS_FILE} and {TRAIN_FILE}.")
    output_dir: str = option("Folder for the remaining files and the two held-out ones.")
    pairs: Annotated[int, Range(1)] = option("Training pairs for calibration.", default=300)
    people: Annotated[int, Range(0)] = option("People to take out of the corpus.", default=100)
    seed: Annotated[int, Range(0)] = option("Determines which ones are drawn.", default=0)


def hold_out(
    train_file: Path, output_dir: Path, pairs: int, people: int = 0, seed: int = 0, corpus_file: Path | None = None
) -> dict[str, int]:
    """Split a TSV of pairs into `birth_places_train.tsv`, `calibration.tsv` and, when `people` is not 0, `unseen.tsv`.

    A `corpus_file` is copied to `wiki.txt`, without the documents of the people in `unseen.tsv`. Other pairs about people
    of a name that is held out are dropped. All files are written, or none.

    Returns:
        The number of lines of each file.

    Raises:
        BadInput: nothing would be left to train on, or a file is not what it should be.
    """
    questions = load_questions(train_file, answers=True)
    rows, titles = list(questions.rows), questions.titles
    if pairs + people >= len(rows):
        raise BadInput(f"{train_file} has {len(rows)} pairs; hold out fewer than {pairs} pairs and {people} people.")
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    file_of = dict.fromkeys(order[:pairs], CALIBRATION_FILE) | dict.fromkeys(
        order[pairs : pairs + people], UNSEEN_FILE
    )
    # A name that is in both is unseen.
    names = {titles[index]: file for index, file in file_of.items()}
    unseen = {name for name, file in names.items() if file == UNSEEN_FILE}
    files = [TRAIN_FILE, CALIBRATION_FILE, *([UNSEEN_FILE] if people else []), *([CORPUS_FILE] if corpus_file else [])]
    with write_lines(output_dir, files) as (write_line, lines):
        for index, row in enumerate(rows):
            file = file_of.get(index, TRAIN_FILE)
            if names.get(titles[index], TRAIN_FILE) == file:
                write_line(file, f"{row['question']}\t{row['answer']}")
        for _, line in read_documents(corpus_file) if corpus_file else ():
            if unseen.isdisjoint(list_titles(line)):
                write_line(CORPUS_FILE, line)
    return lines


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(HoldOutArguments)
    data_dir, output_dir = Path(arguments.data_dir), check_is_folder_or_new(arguments.output_dir)
    if output_dir.resolve() == data_dir.resolve():
        raise BadInput(f"{output_dir}: this is the data's own folder; give another --output_dir.")
    corpus_file = data_dir / CORPUS_FILE
    lines = hold_out(data_dir / TRAIN_FILE, output_dir, arguments.pairs, arguments.people, arguments.seed, corpus_file)
    for name in (DEV_FILE, TEST_FILE):
        if (data_dir / name).is_file():
            with write_atomically(output_dir / name, "wb") as file:
                file.write((data_dir / name).read_bytes())
    print(f"{output_dir}: {', '.join(f'{name} has {count:,} lines' for name, count in lines.items())}.")


if __name__ == "__main__":
    main()
