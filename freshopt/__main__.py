"""Entry point of the command `freshopt`, and of `python -m freshopt`.

Interrupts are quiet from the start.
"""

import io
import sys


def main() -> None:
    """Run the command line.

    What standard output has no letters for is written as an escape.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from freshopt.cli import main as command  # noqa: PLC0415 - click takes a while, and only then is it quiet
    except KeyboardInterrupt:
        sys.stderr.write("\nAborted!\n")
        raise SystemExit(1) from None
    command()


if __name__ == "__main__":
    main()
