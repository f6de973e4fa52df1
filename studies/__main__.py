"""`posgpt study NAME ...`: a sweep, which trains what a YAML file says, or an analysis, which is a module."""

import sys
from importlib import import_module

from data_scripts.errors import exit_on_bad_input
from posgpt.training.encodings import take_imports

SWEEPS = {
    "knowledge": "what each idea of the recipe contributes",
    "course": "the course's experiment, pretrained and from scratch",
    "factorial": "objective × optimizer × dropout, equal characters",
    "few_questions": "how many labelled questions a model needs after reading documents alone",
    "positions": "every position embedding, same data, same budget",
    "extraction": "whether questions reach facts that were read in one wording or in five",
    "inverse": "who was born in a given place and year",
    "two_hop": "two hops: facts about somebody's teacher",
    "steps": "two hops, if an answer may name the middle step",
    "twin": "how far one changed fact reaches",
    "speedrun": "how few characters and minutes take a recipe to 90 % of dev",
    "honesty": "whether models can tell people they have read about from strangers",
    "dynamics": "how the time to learn facts grows with the number of people",
    "FILE.yaml": "a study of your own",
}
ANALYSES = {
    "open_book": "what the data gives away (docs/findings.md)",
    "recall": "what models recall in the words that they have read",
    "length": "trained at 128 characters, read at 1,024",
}


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    name, *arguments = take_imports(sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print("usage: posgpt study NAME [OPTION ...]\n")
        print("\n".join(f"  {name:20} {description}" for name, description in (SWEEPS | ANALYSES).items()))
        print("\nposgpt study NAME --help lists its options.")
    elif name in ANALYSES:
        import_module(f"studies.{name}").main(arguments)
    else:
        import_module("studies.sweep").main([name, *arguments])


if __name__ == "__main__":
    main()
