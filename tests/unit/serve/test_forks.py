"""What a fork of a server inherits of its signals."""

from __future__ import annotations

import subprocess
import sys

SERVER = """
import asyncio, os, signal, threading
from nemo_gym.serve.forks import reset_signals_in_forks

heard, told = [], asyncio.Event()

def end_by(number, *, in_thread=False):
    def fork():
        child = os.fork()
        if child == 0:
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                os._exit(130)
            os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    codes = []
    if in_thread:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    else:
        fork()
    return codes[0]

def hear(number):
    heard.append(number)
    told.set()

async def serve():
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear, number)
    reset_signals_in_forks()
    reset_signals_in_forks()
    for in_thread in (False, True):
        for number in (signal.SIGINT, signal.SIGTERM):
            print(end_by(number, in_thread=in_thread), end=" ")
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []), end=" ")
    signal.raise_signal(signal.SIGTERM)
    await told.wait()
    print(heard)

asyncio.run(serve())
"""


def test_a_fork_is_ended_by_its_own_signals_and_tells_the_server_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "130 -15 130 -15 set() [<Signals.SIGTERM: 15>]\n", done.stderr
