"""Run: a worker process that trains one run after another, so that the libraries are imported only once.

It reads one JSON object a line from standard input (`task`, `config`, `given`, `folder`), trains, and answers with one
JSON object a line: how much is `done`, a few times a second, and then its `status` and `error`. What the training
prints goes to `log.txt` in the folder of the run. When standard input ends while it trains, whoever started it is gone:
it stops as after Ctrl-C, with a checkpoint.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from adaptive_memory_bank.lab.runs.folder import RunFolder


def main() -> None:
    """Answer jobs until there are no more."""
    jobs: queue.Queue[str | None] = queue.Queue()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(jobs, busy), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # between two runs; nobody reads the answers any more
        _answer_all(jobs, busy, answers)
        answers.close()


def _answer_all(jobs: "queue.Queue[str | None]", busy: threading.Event, answers: TextIO) -> None:
    from adaptive_memory_bank.lab.training.process import keep_freed_memory
    from adaptive_memory_bank.lab.training.train import run  # noqa: F401  imported while the first job is on its way

    keep_freed_memory()
    # The pool starts it with SIGINT blocked, for imports turn an interrupt into errors of their own.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while (line := jobs.get()) is not None:
        busy.set()
        answer = run_job(json.loads(line), tell=partial(_tell, answers))
        busy.clear()
        _write(answers, answer)


def _tell(answers: TextIO, share: float) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more: the training ends as `_listen` asks it to
        _write(answers, {"done": share})


def _write(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _listen(jobs: "queue.Queue[str | None]", busy: threading.Event) -> None:
    for line in sys.stdin:
        jobs.put(line)
    jobs.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)


def run_job(job: dict[str, Any], tell: Callable[[float], None] | None = None) -> dict[str, Any]:
    """Train once, telling the share that is done.

    A run that fails says why in its `result.json` and in the answer, and nothing is raised.
    """
    from adaptive_memory_bank.lab.training.tasks import TASKS
    from adaptive_memory_bank.lab.training.train import run

    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with _printing_to(RunFolder(folder).log_file):
        try:
            result = run(TASKS[job["task"]].configure(job["config"]), job["given"], tell=tell)
            return {"status": result.status, "error": None}
        except KeyboardInterrupt:
            return {"status": "interrupted", "error": None}
        except Exception as error:  # whatever it is, the other runs continue
            traceback.print_exc()
            return {"status": "failed", "error": f"{type(error).__name__}: {error}"}


@contextlib.contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Append everything that is printed, also by libraries and child processes, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(number) for number in (1, 2)]
    with path.open("a", encoding="utf-8") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in zip((1, 2), before, strict=True):
            os.dup2(saved, number)
            os.close(saved)


if __name__ == "__main__":
    main()
