"""Programs in namespaces: what they can't reach, what they can't use up, and what is left of them."""

from __future__ import annotations

import errno
import marshal
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec, SandboxStatus, create_provider
from nemo_gym.sandbox.errors import SandboxConfigError, SandboxPathError, SandboxUnavailableError
from nemo_gym.sandbox.providers.namespaces import availability, cgroups, launch
from nemo_gym.sandbox.providers.namespaces.availability import Isolation, isolation
from nemo_gym.sandbox.providers.namespaces.box import WORK, Box, Limits, Way, interpreter, outermost, relative_name
from nemo_gym.sandbox.providers.namespaces.launch import Ended, Jailed

pytestmark = pytest.mark.skipif(bool(isolation().refusal), reason=isolation().refusal or "namespaces can be had")

LIMITS = Limits(wall_s=20, memory_mib=512, processes=20, disk_mib=8, disk_files=50, file_mib=4)


Who = tuple[Way, int | None]


@pytest.fixture(params=["plain", "mapped"] if os.geteuid() == 0 else ["own"])
def who(request: pytest.FixtureRequest) -> Who:
    """Each way that works here: two are root's, the third is of everybody else."""
    isolation = Isolation(request.param)
    if availability._attempt(isolation):
        pytest.skip("not permitted here")
    return isolation.way, isolation.new_uid()


def somebody() -> Who:
    return isolation().way, isolation().new_uid()


async def run(code: str, who: Who, *, limits: Limits = LIMITS, stdin: bytes = b"", **options: object) -> Ended:
    box = Box(limits, **{key: value for key, value in options.items() if key in ("files", "read_only")})  # type: ignore[arg-type]
    return await Jailed(
        [interpreter(), "-c", code], box.spec(*who), WORK, {"HOME": WORK}, stdin, ends_on_excess=True
    ).run()


async def test_a_program_has_its_input_its_files_and_its_output(who: Who) -> None:
    done = await run("print(input(), open('a/b').read())", who, stdin=b"hello\n", files={"a/b": b"there"})
    assert (done.stdout, done.stderr, done.exit_code, done.ended_for) == (b"hello there\n", b"", 0, "")
    assert 0 < done.cpu_s < done.wall_s + 1
    assert done.max_rss_mib > 1


ESCAPES = {
    "a file of the system": "open('/usr/x', 'w')",
    "the root": "open('/x', 'w')",
    "the password file": "open('/etc/shadow').read()",
    "home folders": f"import os; os.listdir({str(Path.home())!r}); os.listdir('/home')",
    "this checkout": f"open({str(Path(__file__).resolve())!r}).read()",
    "the host's processes": "import os; [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) > 2][0]",
    "its keeper's memory": "open('/proc/1/mem', 'rb').read(1)",
    "its keeper's descriptors": "import os; os.listdir('/proc/1/fd')",
    "its keeper": "import os; os.kill(1, 9); open('/proc/1/mem')",
    "the network": "import socket; socket.create_connection(('169.254.169.254', 80), 2)",
    "names": "import socket; socket.getaddrinfo('example.com', 80)",
    "more namespaces": "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "mounts": "import ctypes; assert ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0",
    "root": "import os; os.setuid(0)",
    "descriptors of others": "import os; [os.fstat(n) for n in range(3, 256) if os.path.exists(f'/dev/fd/{n}')][0]",
    "devices": "import os; os.mknod('disk', 0o60666, os.makedev(8, 0)); open('disk', 'rb').read(1)",
    "set-user-id programs": "import os; assert os.statvfs('/usr').f_flag & 2 == 0",
    "its host name": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "settings of the kernel": "open('/proc/sys/kernel/core_pattern', 'a')",
}


@pytest.mark.parametrize("code", ESCAPES.values(), ids=ESCAPES)
async def test_what_is_out_of_reach(code: str, who: Who) -> None:
    """B102."""
    done = await run(code, who)
    assert (done.exit_code, done.signal) == (1, None), done
    assert b"Traceback" in done.stderr


async def test_the_environment_is_empty(who: Who, monkeypatch: pytest.MonkeyPatch) -> None:
    """B103."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    seen = await run(
        "import os; print(sorted(os.environ)); print(os.getuid(), os.getppid(), os.uname().nodename);"
        "print([os.path.exists(f'/proc/{n}/environ') and open(f'/proc/{n}/environ').read() for n in ('self',)])",
        who,
    )
    assert seen.stdout.decode().splitlines()[:2] == ["['HOME', 'LC_CTYPE']", "1000 1 sandbox"]
    assert b"sk-secret" not in seen.stdout


async def test_loopback_and_temporary_files_work(who: Who) -> None:
    done = await run(
        "import socket, tempfile, multiprocessing as m\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); socket.create_connection(s.getsockname())\n"
        "tempfile.NamedTemporaryFile().write(b'x'); m.Lock(); open('/dev/null', 'w').write('x')\n"
        "print(open('/dev/stdin').read(), len(open('/dev/urandom', 'rb').read(4)))",
        who,
        stdin=b"in",
    )
    assert (done.stdout, done.stderr) == (b"in 4\n", b"")


LIMIT_CASES = {
    "time": ("import time; time.sleep(60)", {"wall_s": 0.5}, "wall", None),
    "time of a spinner that ignores signals": (
        "import signal\nfor n in {*range(1, 32)} - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        {"wall_s": 0.5},
        "wall",
        None,
    ),
    "CPU": ("while True: pass", {"cpu_s": 1}, "", 24),
    "output": ("while True: print('x' * 10_000)", {}, "output", None),
}


@pytest.mark.parametrize(("code", "limits", "ended_for", "signal"), LIMIT_CASES.values(), ids=LIMIT_CASES)
async def test_limits_end_a_program(
    code: str, limits: dict[str, float], ended_for: str, signal: int | None, who: Who
) -> None:
    done = await run(code, who, limits=replace(LIMITS, **limits))  # type: ignore[arg-type]
    assert (done.ended_for, done.signal, done.error) == (ended_for, signal, "")


REFUSED = {
    "memory": ("bytearray(2**30)", b"MemoryError"),
    "a large file": ("open('f', 'wb').write(bytes(6 * 2**20))", b"File too large"),
    "many large files": ("[open(f'f{n}', 'wb').write(bytes(2**20)) for n in range(20)]", b"No space left"),
    "many files": ("[open(f'f{n}', 'wb') and None for n in range(200)]", b"No space left"),
    "memory files": ("[open(f'/dev/shm/{n}', 'wb').write(bytes(2**22)) for n in range(200)]", b"No space left"),
    "open files": ("f = [open('/dev/null') for n in range(400)]", b"Too many open files"),
}


@pytest.mark.parametrize(("code", "message"), REFUSED.values(), ids=REFUSED)
async def test_limits_refuse(code: str, message: bytes, who: Who) -> None:
    done = await run(code, who, limits=replace(LIMITS, file_mib=4))
    assert message in done.stderr


async def test_a_fork_bomb_stays_small(who: Who) -> None:
    done = await run(
        "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n"
        "except OSError: print(n)",
        who,
    )
    assert done.stdout == b"19\n"


HIDERS = (
    "import os, time\nfor n in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    "      os.close(1); os.close(2); time.sleep(997)\n    os._exit(0)\n"
)


async def test_nothing_outlives_a_program(who: Who) -> None:
    """Detached grandchildren in their own sessions end with it, whether it ends by itself or for its time."""
    for code, limits in ((HIDERS, LIMITS), (HIDERS + "time.sleep(997)", replace(LIMITS, wall_s=1))):
        await run(code, who, limits=limits)
        assert _left() == []


async def test_nothing_outlives_whoever_asked() -> None:
    """Killed between start and end, the asker takes the program with it: its keeper notices the closed pipe."""
    program = (
        "import asyncio, sys\nfrom tests.unit.sandbox.test_namespaces import *\n"
        "asyncio.run(run(HIDERS + 'print(1, flush=True); time.sleep(997)', somebody()))"
    )
    asker = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3])
    keeper = _wait_for(lambda: [p for p in psutil.Process(asker.pid).children() if _left()])
    asker.kill()
    asker.wait()
    psutil.wait_procs(keeper, timeout=10)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in keeper)
    _wait_for(lambda: [True] if not _left() else [])


async def test_children_that_nobody_waits_for_do_not_pile_up(who: Who) -> None:
    code = (
        "import os, time\nfor n in range(200):\n  if os.fork() == 0:\n    if os.fork() == 0: os._exit(0)\n"
        "    os._exit(0)\n  os.wait()\nprint('done')"
    )
    done = await run(code, who)
    assert (done.stdout, done.stderr) == (b"done\n", b"")


async def test_a_program_that_is_not_there_says_so(who: Who) -> None:
    done = await Jailed(["nothing-of-the-kind"], Box(LIMITS).spec(*who), WORK).run()
    assert (done.exit_code, done.stderr) == (127, b"nothing-of-the-kind: No such file or directory\n")


async def test_what_can_not_be_set_up_is_an_error_and_no_result(who: Who) -> None:
    spec = Box(LIMITS, read_only=["/nothing/there"]).spec(*who)
    done = await Jailed(["true"], spec, WORK).run()
    assert "mounting /nothing/there" in done.error
    assert done.exit_code is None


async def test_a_read_only_path_is_seen_and_not_written(tmp_path: Path, who: Who) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "data").write_text("seen")
    (tmp_path / "data").chmod(0o666)
    done = await run(
        f"print(open('{tmp_path}/data').read()); open('{tmp_path}/data', 'w')", who, read_only=[str(tmp_path)]
    )
    assert done.stdout == b"seen\n"
    assert (tmp_path / "data").read_text() == "seen"


TRIED_BY_A_USER = """
import os
for code in CODES:
    try:
        exec(code)
    except Exception:
        continue
    print("worked:", code)
print(os.getuid())
"""


def test_an_ordinary_user_may_do_it_too(tmp_path: Path) -> None:
    """Where the kernel lets users make namespaces: everything but the way there is the same."""
    python = "/usr/bin/python3"
    if os.geteuid() != 0 or not Path(python).exists():
        pytest.skip("root is needed to become another user, and a Python that user can run")
    tried = f"CODES = {list(ESCAPES.values())!r}\n{TRIED_BY_A_USER}"
    spec = Box(LIMITS).spec("own", None) | {"argv": [python, "-c", tried], "env": {}, "cwd": WORK}
    spec["read_only"] = [pair for pair in spec["read_only"] if not pair[0].startswith(sys.base_prefix)]
    jail = tmp_path / "jail.py"
    jail.write_text(launch.JAIL.read_text())
    for folder in (*tmp_path.parents[:3], tmp_path):
        folder.chmod(0o755)
    with launch.file_of(marshal.dumps(spec)) as told:
        source, sink = os.pipe()
        command = [python, "-I", "-S", str(jail), str(told.fileno()), str(sink)]
        fds = (told.fileno(), sink, source)  # the last is one that the jail knows nothing of
        done = subprocess.run(command, pass_fds=fds, user=65534, group=65534, capture_output=True)
        os.close(sink)
        report = marshal.loads(os.read(source, 65536))
        os.close(source)
    if report.get("errno"):
        pytest.skip(f"ordinary users may not: {report['error']}")
    assert (done.stdout, report["status"]) == (b"1000\n", 0)


# -- finding out -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "command"),
    [
        ("/proc/sys/user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("", "", "--cap-add SYS_ADMIN"),
    ],
)
def test_a_refusal_says_what_to_do(path: str, value: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "_content", lambda asked: value if asked == path else "")
    monkeypatch.setattr(availability, "_attempt", lambda wanted: {"error": "unshare: not permitted", "errno": 1})
    refusal = availability.isolation.__wrapped__().refusal
    assert command in refusal
    assert refusal.count(". ") == 0, "one sentence"


async def test_a_sandbox_is_refused_where_there_is_no_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "isolation", lambda: Isolation(refusal="Not here: use docker."))
    with pytest.raises(SandboxUnavailableError, match=r"^Not here: use docker\.$"):
        await AsyncSandbox({"namespaces": None}).start(SandboxSpec())


def test_it_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    isolation()
    monkeypatch.setattr(availability, "_attempt", lambda wanted: pytest.fail("tried again"))
    isolation()


# -- the provider ----------------------------------------------------------------------------------


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[AsyncSandbox]:
    provider = {"namespaces": {"workspace_root": str(tmp_path / "rooms"), "limits": {"disk_mib": 8, "memory_mib": 512}}}
    box = AsyncSandbox(provider, SandboxSpec(files={"in/a.txt": "hello", "/tmp/b.txt": "you"}, env={"NAME": "value"}))
    (tmp_path / "rooms").mkdir()
    tmp_path.chmod(0o755)
    yield await box.start()
    await box.stop()
    assert await box.status() is SandboxStatus.STOPPED
    assert list((tmp_path / "rooms").iterdir()) == []


async def test_files_last_between_commands(sandbox: AsyncSandbox) -> None:
    done = await sandbox.exec(
        "cat in/a.txt /tmp/b.txt; echo $NAME $EXTRA; pwd; echo kept > kept", env={"EXTRA": "more"}
    )
    assert (done.stdout, done.stderr, done.return_code) == ("helloyouvalue more\n/sandbox\n", "", 0)
    assert (await sandbox.exec("cat ../kept", cwd="in")).stdout == "kept\n"
    assert await sandbox.status() is SandboxStatus.RUNNING


async def test_a_command_that_takes_too_long(sandbox: AsyncSandbox) -> None:
    done = await sandbox.exec("echo begun; sleep 60", timeout_s=2)
    assert (done.stdout, done.return_code, done.error_type) == ("begun\n", 125, "timeout")
    assert done.stderr == "The command was ended after 2 s."


async def test_exit_codes_and_signals(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.exec("exit 7")).return_code == 7
    assert (await sandbox.exec("kill -9 $$")).return_code == 137
    failed = await sandbox.exec("true", cwd="/nowhere")
    assert (failed.return_code, failed.error_type) == (125, "sandbox")


async def test_too_many_bytes_in_its_folders_end_a_command(sandbox: AsyncSandbox) -> None:
    done = await sandbox.exec(
        "while true; do n=$((n+1)); head -c 1000000 /dev/zero > f$n; sleep 0.01; done", timeout_s=30
    )
    assert "disk_mib" in (done.stderr or "")
    assert done.return_code == 137


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "/tmp/../x", "", ".", "in/../../x", "/sandbox"])
async def test_paths_that_lead_out_are_refused(sandbox: AsyncSandbox, tmp_path: Path, name: str) -> None:
    """B107."""
    (tmp_path / "source").write_text("x")
    with pytest.raises(SandboxPathError, match="outside the sandbox's folders"):
        await sandbox.upload(tmp_path / "source", name)
    with pytest.raises(SandboxPathError, match="outside the sandbox's folders"):
        await sandbox.download(name, tmp_path / "target")


@pytest.mark.parametrize("name", ["link", "root/etc/hostname", "up/../../x", "pipe"])
async def test_links_and_pipes_are_not_followed(sandbox: AsyncSandbox, tmp_path: Path, name: str) -> None:
    """B107: a command prepares them, then asks for files to be copied."""
    await sandbox.exec("ln -s /etc/hostname link; ln -s / root; ln -s ../.. up; mkfifo pipe")
    with pytest.raises(SandboxPathError):
        await sandbox.download(name, tmp_path / "target")
    assert not (tmp_path / "target").exists()


async def test_an_upload_replaces_a_link_and_not_what_it_means(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    await sandbox.exec(f"ln -s {outside} link; ln -s {tmp_path} folder")
    (tmp_path / "source").write_text("new")
    await sandbox.upload(tmp_path / "source", "link")
    with pytest.raises(SandboxPathError, match="link"):
        await sandbox.upload(tmp_path / "source", "folder/outside")
    assert outside.read_text() == "untouched"
    assert (await sandbox.exec("cat link")).stdout == "new"
    await sandbox.download("link", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "new"


async def test_its_own_folder_is_as_private_as_others(sandbox: AsyncSandbox) -> None:
    other = AsyncSandbox({"namespaces": None}, SandboxSpec(workdir="/box"))
    await other.start()
    try:
        await sandbox.exec("echo mine > /tmp/mine; echo mine > mine")
        assert (await other.exec("ls /tmp; ls; pwd")).stdout == "/box\n"
    finally:
        await other.stop()


@pytest.mark.parametrize("workdir", ["relative", "/usr/x", "/tmp", "/", "/a/../b"])
async def test_workdirs_that_can_not_be(workdir: str) -> None:
    with pytest.raises(SandboxConfigError, match="workdir"):
        await create_provider({"namespaces": None}).create(SandboxSpec(workdir=workdir))


def test_wrong_options_are_named() -> None:
    with pytest.raises(SandboxConfigError, match="has no cpu_seconds"):
        create_provider({"namespaces": {"limits": {"cpu_seconds": 1}}})
    with pytest.raises(SandboxConfigError, match="concurrency"):
        create_provider({"namespaces": {"concurrency": 0}})


async def test_memory_of_all_processes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(cgroups.Cgroup, "ran_out_of_memory", _noting(made, cgroups.Cgroup.ran_out_of_memory))
    if not cgroups.parents():
        pytest.skip("control groups can't be used here")
    box = AsyncSandbox({"namespaces": {"limits": {"memory_mib": 200}}}, SandboxSpec())
    await box.start()
    try:
        code = "import os; os.fork(); os.fork(); x = bytearray(90 * 2**20); os.wait()"
        done = await box.exec(f"{interpreter()} -c '{code}'", timeout_s=30)
        assert "memory_mib" in (done.stderr or "")
    finally:
        await box.stop()
    assert not any(Path(folder).exists() for folder in made)


async def test_a_control_group_is_removed_once_it_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    rmdir = Path.rmdir

    def busy_twice(path: Path) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.EBUSY, "busy")
        rmdir(path)

    monkeypatch.setattr(cgroups, "parents", lambda: (str(tmp_path),))
    monkeypatch.setattr(Path, "rmdir", busy_twice)
    async with cgroups.cgroup(LIMITS) as group:
        assert [Path(folder).parent for folder in group.folders] == [tmp_path]
        assert not group.ran_out_of_memory()
    assert list(tmp_path.iterdir()) == []


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "/a", "a/../b", "..", "a//b", "a/", "a\0b"])
def test_names_that_lead_out(name: str) -> None:
    with pytest.raises(SandboxPathError):
        relative_name(name)


def test_names_that_stay() -> None:
    assert [relative_name(name) for name in ("a", "a/b", "./a/./b", "..a")] == ["a", "a/b", "a/b", "..a"]


def test_nested_paths_are_bound_once() -> None:
    assert outermost(["/usr/lib", "/usr", "/usrx", "/usr"]) == ["/usr", "/usrx"]


def _noting(made: list[str], asked: Callable[[cgroups.Cgroup], bool]) -> Callable[[cgroups.Cgroup], bool]:
    def ran_out_of_memory(group: cgroups.Cgroup) -> bool:
        made.extend(group.folders)
        return asked(group)

    return ran_out_of_memory


def _left() -> list[int]:
    """Processes of these tests that still sleep."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        is_ours = "997" in line and interpreter() in line and "test_namespaces" not in line
        if is_ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def _wait_for(condition: object) -> list[psutil.Process]:
    for _ in range(500):
        found: list[psutil.Process] = condition()  # type: ignore[operator]
        if found:
            return found
        psutil.wait_procs([], timeout=0)
        os.sched_yield()
        subprocess.run(["true"], check=True)
    raise AssertionError("waited in vain")
