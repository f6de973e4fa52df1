"""The parts of the assignment: the one table that handout and grader read."""

from typing import NamedTuple


class Part(NamedTuple):
    """A part of the assignment: in `solution.py`, what the student writes stands between `# BEGIN name` and `# END name`."""

    name: str
    # Given if the hidden test passes, which is of this function.
    points: int
    function: str
    task: str


PARTS = (
    Part("attention", 25, "attend", "Let each position attend to itself and to those before it."),
    Part("rotary", 25, "rotate", "Rotate queries and keys by their positions (RoPE)."),
    Part("span_corruption", 20, "corrupt_span", "Take a span out of a document and ask for it at the end."),
    Part("finetuning", 10, "encode_pair", "Encode a question with its answer, with loss on the answer alone."),
    Part("answer", 10, "extract_answer", "Cut the answer out of what the model wrote."),
    Part("accuracy", 10, "measure_accuracy", "Compare answers with the correct ones, beside the baseline."),
)
