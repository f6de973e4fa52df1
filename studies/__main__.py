"""`posgpt study NAME ...`: a sweep, which trains what a YAML file says, or an analysis, which is a module."""

import re
import sys
from importlib import import_module
from pathlib import Path

from data_scripts.errors import exit_on_bad_input
from posgpt.imports import take_imports

ANALYSES = {
    "recall": "what models recall in the words that they have read",
    "titles": "whether names are represented in questions as in documents",
    "corrections": "whether finetuning on one question corrects one fact, and what else it changes",
    "length": "trained at 128 characters, read at 1,024",
}


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    name, *arguments = take_imports(sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print("usage: posgpt study NAME [OPTION ...]\n")
        # A sweep's file begins with a sentence on what it is about.
        texts = {file.stem: file.read_text("utf-8") for file in sorted(Path(__file__).parent.glob("*.yaml"))}
        sweeps = {name: text.replace("\n#", "").removeprefix("# ") for name, text in texts.items()}
        sweeps = {name: re.split(r"\.\s", text, maxsplit=1)[0] for name, text in sweeps.items()}
        listed = sweeps | {"FILE.yaml": "a study of your own"} | ANALYSES
        print("\n".join(f"  {name:20} {description}" for name, description in listed.items()))
        print("\nposgpt study NAME --help lists its options.")
    elif name in ANALYSES:
        import_module(f"studies.{name}").main(arguments)
    else:
        import_module("studies.sweep").main([name, *arguments])


if __name__ == "__main__":
    main()
