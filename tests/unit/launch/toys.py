"""Small real components: standard-library servers that serve on the inherited socket and write the ready byte."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.launch.sockets import listen

SERVER = """
import http.server, json, os, signal, socket, subprocess, sys, threading

from nemo_gym.config.handover import INSTANCE_ENV, LISTEN_FD_ENV, READY_FD_ENV, read_config

NAME = os.environ[INSTANCE_ENV]


def facts():
    return {"pid": os.getpid(), "group": os.getpgrp(), "executable": sys.executable, "prefix": sys.prefix,
            "path": sys.path, "cwd": os.getcwd(), "main": __name__, "file": __file__, "argv": sys.argv,
            "environment": dict(os.environ), "config": read_config(), "term": str(signal.getsignal(signal.SIGTERM)),
            "loaded": sorted(name for name in sys.modules if "." not in name), "modules": sorted(sys.modules)}


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(facts()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def main():
    if read_config().get("dry_run"):
        print("constructed")
        return
    bound = socket.socket(fileno=int(os.environ.pop(LISTEN_FD_ENV)))
    server = http.server.ThreadingHTTPServer(bound.getsockname(), Answer, bind_and_activate=False)
    server.socket.close()
    server.socket = bound
    print(f"{NAME} serves")
    os.write(int(os.environ[READY_FD_ENV]), b"1")
    os.close(int(os.environ.pop(READY_FD_ENV)))
    server.serve_forever()


if __name__ == "__main__":
    main()
"""

CRASHES = """
import sys
print("about to fail: the password is s3cret-value")
sys.exit("the toy is broken")
"""

NEVER_READY = """
import signal
signal.pause()
"""

STUBBORN = SERVER.replace(
    'if __name__ == "__main__":',
    'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif __name__ == "__main__":',
)

HAS_GRANDCHILD = SERVER.replace(
    'print(f"{NAME} serves")',
    'subprocess.Popen(["sleep", "300"], start_new_session=True)\n    print(f"{NAME} serves")',
)


def add_component(
    root: Path, name: str, source: str = SERVER, *, kind: str = "resources_servers", requirements: str = ""
) -> Path:
    """A component's folder under a search root."""
    folder = root / kind / name
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(source)
    (folder / "requirements.txt").write_text(f"-e nemo-gym[dev] @ ../../\n{requirements}")
    return folder


def raised_soon(action: Callable[[], object]) -> BaseException | None:
    """What an action raises; a failure when it hasn't ended after a long while."""
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            action()
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert outcome, "it still waits"
    return outcome[0]


def free_port() -> int:
    with listen("127.0.0.1", 0) as bound:
        return int(bound.getsockname()[1])


def config_for(root: Path, *names: str, **extra: Any) -> DictConfig:
    """A composed config with one resources server for each name, implemented by the component of the same name."""
    servers = {
        name: {
            "resources_servers": {
                name: {"entrypoint": "app.py", "domain": "other", "host": "127.0.0.1", "port": free_port()}
            }
        }
        for name in names
    }
    return OmegaConf.create(
        {
            "head_server": {"host": "127.0.0.1", "port": free_port()},
            "uv_venv_dir": str(root / "venvs"),
            "server_spinup_timeout_seconds": 60,
            **servers,
            **extra,
        }
    )
