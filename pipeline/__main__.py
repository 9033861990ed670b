"""The program: `chatmill`, and `python -m pipeline`. All else is imported in the child in which the command runs."""

import sys

from pipeline.job.supervision import run_supervised


def main() -> int:
    """Run a command in a child of this process. Returns the exit code."""
    return run_supervised(_command, _write_failure)


def _command() -> int:
    from pipeline.cli.program import main as run

    return run()


def _write_failure(error: str) -> None:
    """Write in the file of --summary_json, if there is one, what became of the command, which cannot do it any more."""
    from pipeline.cli.options import find_summary_json

    if url := find_summary_json(sys.argv[1:]):
        from pipeline.cli.summary_json import write_failure

        write_failure(error, url)


if __name__ == "__main__":
    sys.exit(main())
