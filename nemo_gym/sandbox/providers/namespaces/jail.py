"""Runs one program in namespaces of its own; a script of the standard library alone, for Linux.

Started as `python -I -S jail.py SPEC_FD REPORT_FD` by `launch.py`; what it is told is `Box.spec` in `box.py`. Three
processes: this one watches from outside, an init in the new pid namespace builds the file system and reaps, and its
child becomes the program. The init's death ends every process in there, whatever it did to hide. The watcher alone
writes the report; the program holds no descriptor but 0, 1 and 2. Few modules load, since each run pays for them.

Without `isolate` in the spec there are no namespaces, only the limits and a process group that is ended.
"""

# ruff: noqa: PTH102, PTH110, PTH112, PTH120, PTH123, PTH211, SIM105 - pathlib and contextlib are not loaded

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` loads would double the start
import ctypes
import errno
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE, SYS_MOUNT_SETATTR = -100, 0x8000, 442
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

INSIDE_ID = 1000
STAGE = "/sys"  # where the new root is put together: a folder there always is, and which no program needs
DEVICES = ("full", "null", "random", "urandom", "zero")
CHECK_SECONDS = 0.1

libc = ctypes.CDLL(None, use_errno=True)


class SetupError(Exception):
    """What could not be set up, and the kernel's error number."""


def main(spec_fd: int, report_fd: int) -> int:
    with os.fdopen(spec_fd, "rb") as file:
        spec = marshal.load(file)
    try:
        report = supervise(spec, report_fd)
    except SetupError as error:
        report = {"error": error.args[0], "errno": error.args[1]}
    except OSError as error:
        report = {"error": str(error), "errno": error.errno or 0}
    try:
        os.write(report_fd, marshal.dumps(report))
    except OSError:
        return 125  # whoever asked is gone
    return 125 if "error" in report else 0


def supervise(spec: dict[str, Any], report_fd: int) -> dict[str, Any]:
    """Run the program to its end or to the first limit that only shows from outside; what happened."""
    cgroups = [os.open(f"{folder}/cgroup.procs", os.O_WRONLY) for folder in spec["cgroups"]]
    started = time.monotonic()
    if spec["isolate"]:
        enter_pid_namespace(spec["way"], spec["uid"])
    go, let_go = os.pipe()
    listening, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let_go)
        os.close(listening)
        os.close(report_fd)
        try:
            begin(spec, cgroups, go, telling)
        finally:
            os._exit(1)  # whatever happens, this process never goes back to watching
    os.close(go)
    os.close(telling)
    os.write(let_go, b"g")
    ended_for = watch(listening, spec, report_fd, started)
    if ended_for:
        end(pid, spec)
    with os.fdopen(listening, "rb") as file:
        told = file.read()
    os.waitpid(pid, 0)
    report: dict[str, Any] = {"ended_for": ended_for, "wall_s": time.monotonic() - started}
    return report | (marshal.loads(told) if told else {})


def enter_pid_namespace(way: str, uid: int) -> None:
    """Make the children of this process live in a new pid namespace, in one of three ways.

    `own`: of an ordinary user, in a user namespace where that user is the only one. `mapped`: of root, in a user
    namespace that has `uid` besides root. `plain`: of root, without one.
    """
    if way == "plain":
        check(libc.unshare(NEWPID), "unshare")
    elif way == "own":
        own_uid, own_gid = os.geteuid(), os.getegid()
        check(libc.unshare(NEWUSER | NEWPID), "unshare")
        map_ids(own_uid, own_gid)
    else:
        enter_mapped(uid)


def enter_mapped(uid: int) -> None:
    """Only a process outside of a user namespace may map users into it: a helper stays there for that."""
    entered, enter = os.pipe()
    pid, helper = os.getpid(), os.fork()
    if helper == 0:
        os.close(enter)
        os._exit(map_from_outside(pid, uid) if os.read(entered, 1) == b"e" else 1)
    os.close(entered)
    status = libc.unshare(NEWUSER | NEWPID)
    number = ctypes.get_errno()
    if status == 0:
        os.write(enter, b"e")
    os.close(enter)
    _, ended = os.waitpid(helper, 0)
    if status != 0:
        raise SetupError(f"unshare: {os.strerror(number)}", number)
    if ended != 0:
        raise SetupError("mapping users: not permitted", errno.EPERM)


def map_from_outside(pid: int, uid: int) -> int:
    try:
        for name in ("uid_map", "gid_map"):
            write(f"/proc/{pid}/{name}", b"0 0 1\n%d %d 1\n" % (INSIDE_ID, uid))
    except OSError:
        return 1
    return 0


def map_ids(uid: int, gid: int) -> None:
    """The ids of this process, in the user namespace that it has just entered."""
    write("/proc/self/setgroups", b"deny")
    write("/proc/self/uid_map", b"%d %d 1" % (INSIDE_ID, uid))
    write("/proc/self/gid_map", b"%d %d 1" % (INSIDE_ID, gid))


def watch(listening: int, spec: dict[str, Any], report_fd: int, started: float) -> str:
    """Wait for what the init tells, or its death; the reason why it must be ended before, if any."""
    poll = select.poll()
    poll.register(report_fd, 0)  # an error there: nobody waits for the report any more
    poll.register(listening, select.POLLIN)
    wall_s, folders = spec["limits"]["wall_s"], spec["watched"]
    pause = CHECK_SECONDS if folders else 3600.0
    while True:
        left = 3600.0 if wall_s is None else started + wall_s - time.monotonic()
        if left <= 0:
            return "wall"
        events = dict(poll.poll(1 + int(min(left, pause) * 1000)))
        if events.pop(report_fd, 0):
            return "abandoned"
        if events:
            return ""
        if folders and is_overfull(folders, spec["limits"]["disk_bytes"], spec["limits"]["disk_files"]):
            return "disk"


def is_overfull(folders: list[str], max_bytes: int, max_files: int) -> bool:
    size = count = 0
    for entry in entries(folders):
        count += 1
        try:
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
        if size > max_bytes or count > max_files:
            return True
    return False


def entries(folders: list[str]) -> Iterator[os.DirEntry[str]]:
    left = list(folders)
    while left:
        try:
            with os.scandir(left.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    yield entry
        except OSError:
            continue


def end(pid: int, spec: dict[str, Any]) -> None:
    """End everything: with the init its namespace; without namespaces it is told to end what it started."""
    os.kill(pid, _signal.SIGKILL if spec["isolate"] else _signal.SIGTERM)


def begin(spec: dict[str, Any], cgroups: list[int], go: int, telling: int) -> None:
    """The life of the init."""
    told: dict[str, Any]
    try:
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL if spec["isolate"] else _signal.SIGTERM)
        if os.read(go, 1) != b"g":
            os._exit(1)
        if spec["isolate"]:
            build(spec)
        told = run(spec, cgroups)
    except SetupError as error:
        told = {"error": error.args[0], "errno": error.args[1]}
    except OSError as error:
        told = {"error": str(error), "errno": error.errno or 0}
    os.write(telling, marshal.dumps(told))
    os._exit(0)


def run(spec: dict[str, Any], cgroups: list[int]) -> dict[str, Any]:
    """Start the program and reap until it ends; its wait status and what it used. Empty: it told of itself."""
    prctl(PR_SET_DUMPABLE, 0)  # the program may not look into this process
    if not spec["isolate"]:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    asked, ask = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(asked)
        os.setpgid(0, 0)
        become(spec, cgroups, ask)
    os.close(ask)
    if not spec["isolate"]:
        _signal.signal(_signal.SIGTERM, lambda *_: end_group(pid))
        os.setpgid(0, 0)
    with os.fdopen(asked, "rb") as file:
        trouble = file.read()
    while True:
        ended, status, usage = os.wait4(-1, 0)
        if ended == pid:
            break
    if not spec["isolate"]:
        end_group(pid)
        end_orphans()
    if trouble:
        return dict(marshal.loads(trouble))
    return {"status": status, "cpu_s": usage.ru_utime + usage.ru_stime, "max_rss_kib": usage.ru_maxrss}


def end_group(pid: int) -> None:
    try:
        os.killpg(pid, _signal.SIGKILL)
    except OSError:
        return


def end_orphans() -> None:
    """End what left the group; a subreaper is the parent of them all in the end."""
    path = f"/proc/self/task/{os.getpid()}/children"
    while os.path.exists(path):
        with open(path) as file:
            children = file.read().split()
        if not children:
            return
        for child in children:
            os.kill(int(child), _signal.SIGKILL)
        for child in children:
            os.waitpid(int(child), 0)


def become(spec: dict[str, Any], cgroups: list[int], ask: int) -> NoReturn:
    """The life of the program before it is the program."""
    try:
        for cgroup in cgroups:
            os.write(cgroup, b"0")
        for number in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM"):  # Python changed them; handlers survive no exec
            _signal.signal(getattr(_signal, number), _signal.SIG_DFL)
        if spec["isolate"]:
            libc.unshare(NEWCGROUP)
            give_up_power(spec)
        set_limits(spec["limits"])
        os.chdir(spec["cwd"])
        os.umask(0o022)
    except (OSError, ValueError) as error:
        os.write(ask, marshal.dumps({"error": f"preparing the program: {error}", "errno": getattr(error, "errno", 0)}))
        os._exit(125)
    os.closerange(3, ask)
    os.closerange(ask + 1, 1 << 20)
    try:  # as a shell does, a failing exec says so on stderr
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as error:
        os.write(2, f"{spec['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)


def give_up_power(spec: dict[str, Any]) -> None:
    """No capability, no way to get one, and no user namespace to get them in."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    if spec["way"] != "own":
        uid = INSIDE_ID if spec["way"] == "mapped" else spec["uid"]
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if spec["way"] == "plain":
        prctl(PR_SET_DUMPABLE, 1)  # only who is dumpable may write its own id maps
        if libc.unshare(NEWUSER) == 0:
            map_ids(spec["uid"], spec["uid"])
            forbid_user_namespaces()
    check(prctl(PR_SET_NO_NEW_PRIVS, 1), "prctl")


def forbid_user_namespaces() -> None:
    """None below this one; where there is no /proc to say so, no program can map users either."""
    try:
        write("/proc/sys/user/max_user_namespaces", b"0")
    except OSError:
        pass


def set_limits(limits: dict[str, Any]) -> None:
    """Each no higher than it is already, which only the powerful may raise."""
    for name, number in (
        ("cpu_s", resource.RLIMIT_CPU),
        ("memory_bytes", resource.RLIMIT_AS),
        ("open_files", resource.RLIMIT_NOFILE),
        ("processes", resource.RLIMIT_NPROC),
        ("file_bytes", resource.RLIMIT_FSIZE),
        ("core_bytes", resource.RLIMIT_CORE),
    ):
        wanted = limits[name]
        if wanted is None:
            continue
        spare = 1 if name == "cpu_s" else 0  # the soft limit ends it by a signal of its own, the hard one for certain
        _, hard = resource.getrlimit(number)
        highest = wanted + spare if hard == resource.RLIM_INFINITY else min(wanted + spare, hard)
        resource.setrlimit(number, (min(wanted, highest), highest))


# -- the file system ---------------------------------------------------------------------------------------------------


def build(spec: dict[str, Any]) -> None:
    """A root of nothing but what the spec names, in fresh mount, net, ipc and uts namespaces."""
    owner = spec["uid"] if spec["way"] == "plain" else INSIDE_ID
    check(libc.unshare(NEWNS | NEWNET | NEWIPC | NEWUTS), "unshare")
    libc.sethostname(b"sandbox", 7)
    raise_loopback()
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.umask(0o022)
    mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for path, target in spec["links"]:
        at(path, os.makedirs, parent=True)
        os.symlink(target, STAGE + path)
    for path, size, files in spec["tmpfs"]:
        at(path, os.makedirs)
        options = f"size={size},nr_inodes={files},mode=700,uid={owner},gid={owner}"
        mount("tmpfs", STAGE + path, "tmpfs", MS_NOSUID | MS_NODEV, options)
    for source, path in spec["writable"]:
        bind(source, path, writable=True)
    for source, path in spec["read_only"]:
        bind(source, path, writable=False)
    for path, content in spec["files"]:
        put(path, content, None)
    add_devices(spec["limits"]["shm_bytes"], owner)
    at("/proc", os.makedirs)
    # Refused where the /proc of a container hides parts of it; programs then do without.
    libc.mount(b"proc", (STAGE + "/proc").encode(), b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    for path, content in spec["own_files"]:
        put(path, content, owner)
    os.chdir(STAGE)
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")
    if spec["way"] != "plain":
        forbid_user_namespaces()
    check(libc.mount(None, b"/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, None), "mount /")


def at(path: str, make: Callable[..., None], parent: bool = False) -> None:
    """Make a folder of the new root, or the one it will be in."""
    make(os.path.dirname(STAGE + path) if parent else STAGE + path, exist_ok=True)


def bind(source: str, path: str, *, writable: bool) -> None:
    if os.path.isdir(source):
        at(path, os.makedirs)
    else:
        put(path, b"", None)
    mount(source, STAGE + path, None, MS_BIND | MS_REC)
    protect(STAGE + path, MS_NOSUID | MS_NODEV | (0 if writable else MS_RDONLY))


def protect(path: str, flags: int) -> None:
    """Flags for a mount and the mounts below it; the numbers of the three used are the same in both interfaces."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    arguments = (AT_FDCWD, path.encode(), AT_RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(32))
    if libc.syscall(ctypes.c_long(SYS_MOUNT_SETATTR), *arguments) == 0:
        return
    if ctypes.get_errno() != errno.ENOSYS:
        check(-1, f"protecting {path}")
    held = os.statvfs(path).f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048)
    mount(None, path, None, MS_REMOUNT | MS_BIND | flags | (held & 15) | (held & 1024) | (held & 2048))


def put(path: str, content: bytes, owner: int | None) -> None:
    folder = STAGE
    for name in os.path.dirname(path).split("/")[1:]:
        folder += f"/{name}"
        if not os.path.isdir(folder):
            os.mkdir(folder)
            if owner is not None:
                os.chown(folder, owner, owner)
    with open(STAGE + path, "wb") as file:
        file.write(content)
    if owner is not None:
        os.chown(STAGE + path, owner, owner)


def add_devices(shm_bytes: int, owner: int) -> None:
    at("/dev", os.makedirs)
    for name in DEVICES:
        put(f"/dev/{name}", b"", None)
        mount(f"/dev/{name}", f"{STAGE}/dev/{name}", None, MS_BIND)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{STAGE}/dev/{name}")
    at("/dev/shm", os.makedirs)
    options = f"size={shm_bytes},nr_inodes=1024,mode=700,uid={owner},gid={owner}"
    mount("tmpfs", f"{STAGE}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options)


def raise_loopback() -> None:
    """127.0.0.1 works in there, as programs expect; a failure leaves no network at all."""
    descriptor = libc.socket(2, 1, 0)
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder), 40)
    libc.ioctl(descriptor, ctypes.c_ulong(SIOCSIFFLAGS), request)
    if descriptor >= 0:
        os.close(descriptor)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    status = libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    check(status, f"mounting {source or ''} at {target.removeprefix(STAGE) or '/'}")


def prctl(option: int, value: int) -> int:
    return libc.prctl(option, value, 0, 0, 0) if sys.platform == "linux" else 0


def write(path: str, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(content)


def check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise SetupError(f"{what}: {os.strerror(number)}", number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
