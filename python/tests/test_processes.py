"""The processes of a run seen from outside: who may reach them, where they listen, how many threads they have."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from driver_scripts import Script, Scripts, scripts_fixture, threads_of, wait_until  # noqa: F401

NOBODY = "65534"

UP = """
    import os, sys, time
    import carril
    from carril import train

    def loop():
        train.report({"step": 1})
        print(f"worker up {os.getpid()}", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)

    if __name__ == "__main__":
        print(f"socket {carril.init(num_cpus=2)['address']}", flush=True)
        train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2)).fit()
        print(f"driver threads {len(os.listdir('/proc/self/task'))}", flush=True)
"""


class Up:
    """A run whose workers wait for a word."""

    def __init__(self, scripts: Scripts, before: tuple[str, ...] = ()) -> None:
        self._scripts = scripts
        (scripts.directory / "go").unlink(missing_ok=True)
        self.script: Script = scripts.start(UP, before=before)
        self.workers = [int(pid) for pid in self.script.wait_for(r"worker up (\d+)", times=2)]
        self.socket = Path(self.script.wait_for(r"socket (.*)")[0])

    def end(self) -> None:
        (self._scripts.directory / "go").touch()
        assert self.script.finish() == 0, self.script.output


@pytest.fixture(name="up")
def up_fixture(scripts: Scripts) -> object:
    made = Up(scripts)
    yield made
    made.end()


def sockets_of(pid: int) -> set[str]:
    found = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def listening(pid: int) -> list[tuple[str, int]]:
    """The addresses, of either family, at which this process listens."""
    own, found = sockets_of(pid), []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:
                address, _, port = fields[1].rpartition(":")
                found.append((address, int(port, 16)))
    return found


def test_the_heads_directory_and_sockets_are_for_its_user_alone(up: Up) -> None:
    directory = up.socket.parent
    for path in (directory, directory.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
        assert path.stat().st_uid == os.geteuid()
    # The zygote has one too, once it is there.
    sockets = {path.name for path in directory.iterdir() if path.is_socket() and not path.name.startswith("mappers-")}
    assert sockets == {"head.sock", "agent.sock"}
    assert all(len(os.fsencode(path)) < 100 for path in directory.iterdir())


CLIENT = """
import sys
import carril
from carril._native import Client
try:
    client = Client.connect(sys.argv[1])
    print("connected to", client.head_pid)
except carril.exceptions.CarrilError as error:
    print("refused", error.code)
"""


def test_another_user_is_refused_even_where_the_files_would_let_him(up: Up) -> None:
    """He can neither enter the directory, nor speak to the socket once somebody has opened the way for him."""

    def connect(*before: str) -> str:
        command = [*before, sys.executable, "-c", CLIENT, str(up.socket)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
        return done.stdout + done.stderr

    assert "connected to" in connect()
    other = ("setpriv", "--reuid", NOBODY, "--clear-groups")
    # What the other user needs besides: an interpreter that he may read, and its packages.
    assert "refused head-lost" in connect(*other)
    parents = [up.socket, up.socket.parent, up.socket.parent.parent, up.socket.parents[2], up.socket.parents[3]]
    modes = [(path, stat.S_IMODE(path.stat().st_mode)) for path in parents]
    try:
        for path, mode in modes:
            path.chmod(mode | 0o777)
        # The file system lets him in now; the head looks at who he is.
        assert "refused head-lost" in connect(*other)
    finally:
        for path, mode in reversed(modes):
            path.chmod(mode)
    assert "connected to" in connect()


def test_nothing_of_ours_listens_but_the_store_of_rank_zero_on_loopback(up: Up) -> None:
    ours = [found.pid for found in up.script.related()]
    assert len(ours) >= 5
    addresses = [address for pid in ours for address in listening(pid)]
    loopback = "0100007F"
    assert {address for address, _ in addresses} <= {loopback}, addresses
    assert len({port for _, port in addresses}) == 1, addresses
    with_store = [pid for pid in ours if listening(pid)]
    environment = Path(f"/proc/{up.workers[0]}/environ")
    assert environment.exists()
    assert with_store in ([up.workers[0]], [up.workers[1]]), with_store


def test_the_number_of_our_threads_is_the_same_on_one_core_and_on_two(scripts: Scripts) -> None:
    counts = []
    for cores in ("0", "0,1"):
        up = Up(scripts, before=("taskset", "-c", cores))
        head = threads_of(up.script.head().pid)
        workers = [threads_of(pid) for pid in up.workers]
        up.end()
        (driver,) = up.script.wait_for(r"driver threads (\d+)")
        counts.append((head, workers, driver))
    assert counts[0] == counts[1]
    head, workers, _ = counts[0]
    # The head-and-agent: one that does everything, one that starts processes, at most two for files.
    assert len(head) <= 4, head
    # A worker without a framework: the user's thread and ours.
    assert all(len(names) <= 3 and "carril-worker" in names for names in workers), workers


def test_the_family_is_as_the_design_draws_it(up: Up) -> None:
    head = up.script.head()
    assert head.parent == up.script.pid
    (zygote,) = [
        found
        for found in up.script.related("carril._internal.zygote")
        if found.pid not in up.workers and found.parent == head.pid
    ]
    for pid in up.workers:
        (worker,) = [found for found in up.script.related() if found.pid == pid]
        assert worker.parent == head.pid
    # Each in a session of its own: what a terminal sends reaches the driver alone.
    sessions = {os.getsid(pid) for pid in (up.script.pid, head.pid, zygote.pid, *up.workers)}
    assert len(sessions) == 5


def test_a_worker_is_called_by_its_run_and_its_rank(up: Up) -> None:
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in up.workers}
    assert {name.rpartition(":")[2] for name in names} == {"0", "1"} and all(len(name) <= 15 for name in names), names
    for pid in up.workers:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
        assert re.fullmatch(r"carril worker: rank [01] of 2, run `.+", command), command


def test_a_missing_temporary_directory_is_one_clear_error(scripts: Scripts) -> None:
    script = scripts.start("import carril\ncarril.init()", TMPDIR=str(scripts.directory / "gone"), XDG_RUNTIME_DIR="")
    assert script.finish() == 1
    gone = scripts.directory / "gone"
    assert f"StorageError: there is no directory `{gone}` for temporary files" in script.output
    assert f"hint: make it (`mkdir -p {gone}`), or set `TMPDIR` to one that is there" in script.output


def test_a_deleted_working_directory_is_one_clear_error(scripts: Scripts) -> None:
    script = scripts.start("""
        import os
        from carril import train

        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        train.DataParallelTrainer(lambda: None).fit()
    """)
    assert script.finish() == 1
    assert "ConfigError: the working directory of this process has been deleted\nhint: change to one" in script.output


LIMITED = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
    from carril import train
    import carril

    def loop():
        train.report({{"limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0]}})

    carril.init(num_cpus=1000)
    result = train.DataParallelTrainer(
        loop, scaling_config=train.ScalingConfig(num_workers={workers}), run_config=train.RunConfig(storage_path="runs")
    ).fit()
    print("limit of a worker", result.metrics["limit"])
"""


def test_too_few_descriptors_for_anything_are_one_clear_error(scripts: Scripts) -> None:
    script = scripts.start(LIMITED.format(soft=16, hard=16, workers=1))
    assert script.finish() == 1
    assert "too many open files: carril needs 64 at least, and `ulimit -n` allows 16" in script.output
    assert "hint: raise the limit before the script is started: `ulimit -n " in script.output


def test_too_few_descriptors_for_a_group_are_its_headline(scripts: Scripts) -> None:
    script = scripts.start(LIMITED.format(soft=256, hard=256, workers=64))
    assert script.finish() == 1
    needs = "too many open files: 64 workers need 368, and `ulimit -n` allows 256"
    assert f"failed: {needs}" in script.output, script.output
    assert "exit code -1" not in script.output


def test_a_low_soft_limit_is_raised_for_the_head_and_kept_for_the_workers(scripts: Scripts) -> None:
    # More than the soft limit would have room for.
    script = scripts.start(LIMITED.format(soft=64, hard=4096, workers=8))
    assert script.finish() == 0, script.output
    assert "limit of a worker 64" in script.output


def test_a_root_directory_of_somebody_else_is_refused(scripts: Scripts) -> None:
    foreign = scripts.runtime / f"carril-{os.geteuid()}"
    foreign.mkdir(mode=0o777)
    foreign.chmod(0o777)
    script = scripts.start("""
        import carril
        carril.init()
    """)
    assert script.finish() == 1
    assert f"`{foreign}`, where heads have their sockets, can be entered by others (mode 777" in script.output
    assert f"hint: if it is yours: `chmod 700 {foreign}`" in script.output


def test_a_temporary_directory_with_a_long_name_is_no_obstacle(scripts: Scripts) -> None:
    long = scripts.directory / ("long" * 30)
    long.mkdir()
    output = scripts.run(
        """
        import carril
        print(len(carril.init()["address"]))
        """,
        TMPDIR=str(long),
        XDG_RUNTIME_DIR=str(long),
    )
    assert int(output) < 100


def test_many_runs_in_one_driver_leave_no_descriptors_threads_or_files(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, time
        import carril
        from carril import train

        context = carril.init(num_cpus=2)
        trainer = train.DataParallelTrainer(lambda: train.report({"a": 1}), scaling_config=train.ScalingConfig(num_workers=2))
        for number in range(30):
            trainer.fit()
            if number in (4, 29):
                print(f"pause {number}", flush=True)
                while not os.path.exists(f"go-{number}"):
                    time.sleep(0.01)
    """)
    seen = []
    for number in (4, 29):
        script.wait_for(f"pause {number}")
        head = script.head().pid
        (directory,) = (scripts.runtime / f"carril-{os.geteuid()}").iterdir()

        def state(head: int = head, directory: Path = directory) -> tuple[int, ...]:
            pids = (script.pid, head)
            descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
            threads = [len(threads_of(pid)) for pid in pids]
            reports = len(list(directory.glob("*.reports")))
            return (*descriptors, *threads, reports, len(script.related()))

        if seen:
            wait_until(lambda: state() == seen[0], "the same state as after five runs", lambda: (seen[0], state()))
        seen.append(state())
        (scripts.directory / f"go-{number}").touch()
    assert script.finish() == 0, script.output
