"""Run a program as `__main__`, and kill its process group when the other end of an inherited pipe closes.

Started by file name with the server's own interpreter, which may have nothing but the standard library.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    lifeline, entrypoint = int(sys.argv[1]), sys.argv[2]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks SIGINT in what it runs
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    sys.argv = [entrypoint]
    sys.path[0] = os.path.dirname(entrypoint)  # noqa: PTH120 - nothing but what starts with the interpreter
    runpy.run_path(entrypoint, run_name="__main__")


if __name__ == "__main__":
    main()
