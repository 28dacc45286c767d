"""The actor of one server, without Ray: what it starts on its node, what it tells, and what is left when it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.instances import server_instances
from nemo_gym.launch import ray_seat
from nemo_gym.launch.errors import PortTakenError
from nemo_gym.launch.placement import base_venv
from nemo_gym.launch.plan import plan_servers
from nemo_gym.launch.ray_seat import Addresses, News, Seat, SeatOrder, carried_variables
from nemo_gym.launch.sockets import Endpoint, PortRange, listen
from tests.unit.launch import toys
from tests.unit.launch.test_launch import ask

Until = Callable[[Callable[[], bool]], None]
MakeSeat = Callable[..., Seat]


@pytest.fixture
def seat_of(root: Path) -> Iterator[MakeSeat]:
    seats = []

    def make(source: str = toys.SERVER, *, port: int = 0, **variables: str) -> Seat:
        toys.add_component(root, "toy", source)
        (plan,) = plan_servers(server_instances(toys.config_for(root, "toy")))
        endpoint = Endpoint("toy", "127.0.0.1", port, remedy=" with ++toy.port=<port>")
        order = SeatOrder(plan, base_venv(), "ray-x-1", "the token", variables, {}, endpoint, PortRange(10001, 20000))
        seat = Seat(order)
        seats.append(seat)
        return seat

    yield make
    for seat in seats:
        if hasattr(seat, "_spawner"):
            seat.stop(1.0)
            seat.clear()


def config_text(**more: Any) -> str:
    return json.dumps({"toy": {}, **more})


def news_until(seat: Seat, holds: Callable[[News], bool], *, since: int = 0, was_ready: bool = False) -> News:
    """All the news, as one, up to those for which it holds."""
    log = b""
    for _ in range(100):
        news = seat.news(since + len(log), 5.0, was_ready)
        log += news.log
        if holds(news):
            return News(log, news.end, news.is_ready, news.returncode, news.words)
    raise AssertionError(f"it never came true: {log!r}")


def test_its_server_is_started_on_its_socket_with_what_the_run_says(seat_of: MakeSeat) -> None:
    seat = seat_of(SOME_API_KEY="k-1")
    port = seat.sit_down()
    pid = seat.start(config_text(a=1), Addresses(1, '{"toy": "u"}'), 0)
    assert news_until(seat, lambda news: news.is_ready).returncode is None
    facts = ask(f"http://127.0.0.1:{port}")
    assert facts["pid"] == pid != os.getpid()
    assert facts["config"] == {"toy": {}, "a": 1}
    assert facts["environment"]["SOME_API_KEY"] == "k-1"
    assert "NEMO_GYM_GENERATION" not in facts["environment"]
    folder = Path(facts["environment"]["NEMO_GYM_RUN_DIR"])
    assert (folder / "token").read_text() == "the token"
    assert folder.name == "ray-x-1" and folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "config.json").stat().st_mode & 0o777 == 0o600
    del os.environ["SOME_API_KEY"]


def test_its_log_and_its_end_are_told(seat_of: MakeSeat) -> None:
    seat = seat_of(toys.CRASHES)
    seat.sit_down()
    seat.start(config_text(), Addresses(0, "{}"), 0)
    news = news_until(seat, lambda news: news.returncode is not None)
    assert news.log == b"about to fail: the password is s3cret-value\nthe toy is broken\n"
    assert (news.returncode, news.is_ready, news.words) == (1, False, "")


def test_a_server_that_died_is_started_again_where_it_was(seat_of: MakeSeat) -> None:
    seat = seat_of()
    port = seat.sit_down()
    pid = seat.start(config_text(), Addresses(0, "{}"), 0)
    news_until(seat, lambda news: news.is_ready)
    seat.send_signal(signal.SIGKILL)
    ended = news_until(seat, lambda news: news.returncode is not None, was_ready=True)
    assert ended.returncode == -signal.SIGKILL
    again = seat.start(config_text(), Addresses(0, "{}"), 2)
    assert news_until(seat, lambda news: news.is_ready, since=ended.end).log == b"toy serves\n"
    facts = ask(f"http://127.0.0.1:{port}")
    assert facts["pid"] == again != pid
    assert facts["environment"]["NEMO_GYM_GENERATION"] == "2"


def test_of_two_lists_of_addresses_the_newer_counts(seat_of: MakeSeat, tmp_path: Path) -> None:
    seat = seat_of()
    seat.sit_down()
    file = tmp_path / "run" / f"nemo-gym-{os.getuid()}" / "ray-x-1" / "addresses.json"
    seat.tell(Addresses(5, '{"a": "new"}'))
    seat.tell(Addresses(4, '{"a": "old"}'))
    assert file.read_text() == '{"a": "new"}'
    seat.tell(Addresses(6, '{"a": "newer"}'))
    assert file.read_text() == '{"a": "newer"}'


def test_what_was_handed_on_of_a_log_is_dropped(
    seat_of: MakeSeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_seat, "MOST_LOG_BYTES", 8)
    seat = seat_of()
    seat.sit_down()
    log = tmp_path / "run" / f"nemo-gym-{os.getuid()}" / "ray-x-1" / "logs" / "toy.log"
    with log.open("ab") as file:
        file.write(b"a line of 18 bytes")
        file.flush()
        assert seat.news(0, 1.0, False).log == b"a line of 18 bytes"
        assert seat.news(18, 0.0, False) == News(b"", 18, False)
        assert log.stat().st_size == 0
        file.write(b"more")
        file.flush()
        assert seat.news(18, 1.0, False) == News(b"more", 22, False)


def test_nothing_is_left_when_it_stops(seat_of: MakeSeat, until: Until, tmp_path: Path) -> None:
    seat = seat_of()
    port = seat.sit_down()
    pid = seat.start(config_text(), Addresses(0, "{}"), 0)
    news_until(seat, lambda news: news.is_ready)
    seat.stop(5.0)
    assert news_until(seat, lambda news: news.returncode is not None, was_ready=True).returncode == 128 + signal.SIGTERM
    seat.clear()
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert not list((tmp_path / "run").glob("*/ray-*"))
    listen("127.0.0.1", port).close()


def test_a_port_that_is_taken_there_is_named(seat_of: MakeSeat) -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(
            PortTakenError, match=rf"Port {port} on 127.0.0.1, meant for toy, is taken by pid {os.getpid()}"
        ):
            seat_of(port=port).sit_down()


def test_keys_travel_to_other_nodes_and_paths_do_not() -> None:
    here = {
        "OPENAI_API_KEY": "k",
        "PATH": "/mine",
        "HOME": "/me",
        "XDG_RUNTIME_DIR": "/run/me",
        "RAY_ADDRESS": "a:1",
        "SLURM_JOB_ID": "7",
        "NEMO_GYM_RUN_DIR": "/run/me/x",
        "NEMO_GYM_RUN_MARKER_1": "1",
        "NEMO_GYM_EXTRA_ROOTS": "/components",
    }
    assert carried_variables(here) == {"OPENAI_API_KEY": "k", "NEMO_GYM_EXTRA_ROOTS": "/components"}


def test_what_a_dead_server_left_does_not_meet_its_successor(seat_of: MakeSeat, until: Until, tmp_path: Path) -> None:
    left = (
        'import subprocess\nsleeper = subprocess.Popen(["sleep", "300"], start_new_session=True)\nprint(sleeper.pid)\n'
    )
    seat = seat_of(left + toys.SERVER)
    seat.sit_down()
    seat.start(config_text(), Addresses(0, "{}"), 0)
    first = news_until(seat, lambda news: news.is_ready)
    seat.send_signal(signal.SIGKILL)
    ended = news_until(seat, lambda news: news.returncode is not None, since=first.end, was_ready=True)
    sleeper = int(first.log.split()[0])
    seat.start(config_text(), Addresses(0, "{}"), 1)
    until(lambda: not is_running(sleeper))
    again = news_until(seat, lambda news: news.is_ready, since=ended.end)
    os.kill(int(again.log.split()[0]), signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
