"""Entry point of the command `freshopt`, and of `python -m freshopt`.

Interrupts are quiet from the start.
"""

import io
import os
import signal
import sys
from types import FrameType

# Where polars' compiled code waits for Python: an interrupt there is a panic, and said at length.
_WAITED_FOR = os.path.join("polars", "datatypes")
_LATER = 0.01


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once no compiled code waits for Python."""
    while frame is not None:
        if _WAITED_FOR in frame.f_code.co_filename:
            import threading  # noqa: PLC0415 - few interrupts need it

            # To the main thread, which may sleep by then; elsewhere than on Windows that wakes it.
            wake = getattr(signal, "pthread_kill", lambda _thread, own: signal.raise_signal(own))
            again = threading.Timer(_LATER, wake, (threading.main_thread().ident, number))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line.

    What standard output has no letters for is written as an escape.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from freshopt.cli import main as command  # noqa: PLC0415 - click takes a while, and only then is it quiet
    except KeyboardInterrupt:
        sys.stderr.write("\nAborted!\n")
        raise SystemExit(1) from None
    command()


if __name__ == "__main__":
    main()
