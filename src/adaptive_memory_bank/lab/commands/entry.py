"""Where `amb` starts: Ctrl-C ends it without a traceback, also while it is still importing."""

import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command; imports turn a KeyboardInterrupt into errors of their own, so remember that there was one."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        from adaptive_memory_bank.lab.commands.main import main as run_command

        return run_command()
    except BaseException:
        if interrupts:
            return 130
        raise


if __name__ == "__main__":
    sys.exit(main())
