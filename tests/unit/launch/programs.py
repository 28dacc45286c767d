"""Programs for the fork server to run, and what runs them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nemo_gym.launch.fork_server import ForkServer
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.launch.process import ServerProcess

PROBE = """
import gc, json, multiprocessing, os, pickle, random, signal, sys

class Point:
    pass

def greet(queue):
    queue.put((sys.executable, os.getppid()))

def greeting():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=greet, args=(queue,))
    child.start()
    answer = queue.get(timeout=30)
    child.join()
    return answer

if __name__ == "__main__":
    facts = {
        "collecting": gc.isenabled(), "pickled": type(pickle.loads(pickle.dumps(Point()))) is Point,
        "greeting": greeting(),
        "pid": os.getpid(), "group": os.getpgrp(), "parent": os.getppid(), "session": os.getsid(0),
        "executable": sys.executable, "prefix": sys.prefix, "path": sys.path, "cwd": os.getcwd(), "argv": sys.argv,
        "module": Point.__module__, "file": __file__, "stdin": sys.stdin.read(), "random": random.random(),
        "term": signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN,
        "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "environment": {name: os.environ.get(name) for name in ("A", "GONE", "PYTHONPATH")},
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "loaded": sorted(name for name in sys.modules if "." not in name),
    }
    print(json.dumps(facts))
    os.write(int(os.environ["NEMO_GYM_READY_FD"]), b"1")
"""

WAITS = """
import os, signal
os.write(int(os.environ["NEMO_GYM_READY_FD"]), b"1")
while True:
    signal.pause()
"""

WITH_GRANDCHILD = """
import os, signal, subprocess
subprocess.Popen(["sleep", "300"], start_new_session=True)
subprocess.Popen(["sleep", "300"])
os.write(int(os.environ["NEMO_GYM_READY_FD"]), b"1")
while True:
    signal.pause()
"""

AT_EXIT = """
import atexit, os, signal
atexit.register(lambda: print("exit handler ran", flush=True))
os.write(int(os.environ["NEMO_GYM_READY_FD"]), b"1")
while True:
    signal.pause()
"""


class Programs:
    """Runs programs under a fork server, each with a log and a ready pipe."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def start(self, source: str, *, mode: Any = "fork", name: str = "toy", **environment: str) -> ServerProcess:
        """The process once it wrote its ready byte, or ended without."""
        program = self.folder / f"{name}.py"
        program.write_text(source)
        base = this_installation()
        request = SpawnRequest(
            name=name,
            mode=mode,
            python=str(base.executable),
            prefix=str(base.prefix),
            site_packages=str(base.site_directories[0]),
            entrypoint=str(program),
            directory=str(self.folder),
            environment={"A": "b", "PYTHONPATH": str(self.folder), **environment},
            unset=["GONE"],
            roles=["log", "ready"],
        )
        ready, ready_end = os.pipe()
        with self.log(name).open("ab") as log:
            process = self.server.spawn(request, [log.fileno(), ready_end])
        os.close(ready_end)
        os.read(ready, 1)
        os.close(ready)
        return process

    def log(self, name: str = "toy") -> Path:
        return self.folder / f"{name}.log"


DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    os._exit(0)
os.wait()
os.write(int(os.environ["NEMO_GYM_READY_FD"]), b"1")
signal.pause()
"""
