"""Compare runs: the figures of reports side by side, and what differs in how their models were trained.

    posgpt compare runs/report_learned runs/report_rotary

The folders are of reports on the same questions (`posgpt evaluate --report`), or of trainings.
"""

from dataclasses import dataclass

from data_scripts.errors import check_installed, exit_on_bad_input
from data_scripts.options import option, parse_options
from posgpt.evaluation.comparison import format_comparison, load_runs


@dataclass
class ComparisonArguments:
    """What to compare."""

    folders: list[str] = option("Folders of reports, or of trainings.", positional=True)


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(ComparisonArguments, argv)
    # scipy comes with it.
    check_installed("report", "sklearn")
    print(format_comparison(load_runs(arguments.folders)))


if __name__ == "__main__":
    main()
