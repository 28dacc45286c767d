"""A package `vllm` whose `serve` only notes how it was called, and answers `/v1/models`."""

from __future__ import annotations

from pathlib import Path

_MAIN = """
import http.server, json, os, sys, time

def value(flag):
    return sys.argv[sys.argv.index(flag) + 1]

print("fake engine", *sys.argv[1:], flush=True)
if os.environ.get("FAKE_EXIT"):
    sys.exit(int(os.environ["FAKE_EXIT"]))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        names = ("VLLM_API_KEY", "HF_HOME", "RAY_ADDRESS", "VLLM_RAY_DP_PACK_STRATEGY", "VLLM_LOGGING_LEVEL")
        variables = {name: os.environ.get(name) for name in names}
        known = self.headers["authorization"] == f"Bearer {variables['VLLM_API_KEY']}"
        content = json.dumps({"arguments": sys.argv[1:], "variables": variables}).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        if self.path == "/die":
            os._exit(7)

    def log_message(self, *args):
        pass

http.server.HTTPServer((value("--host"), int(value("--port"))), Handler).serve_forever()
"""


def install(folder: Path) -> str:
    """Writes the package; returns what PYTHONPATH has to name."""
    package = folder / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for part in (folder / "vllm", folder / "vllm" / "entrypoints", package):
        (part / "__init__.py").touch()
    (package / "main.py").write_text(_MAIN)
    return str(folder)
