"""The measures that look at processes which do nothing: memory of head and agent, and how many threads there are.

Memory is PSS: what a process shares is divided among those that share it. Threads are counted on one core, on all
cores, and, where a C compiler is there, with the number of cores faked to 64; a pool that is sized by the cores
shows as a difference.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from runner.environments import Environment
from runner.measures import BENCHES, Bar
from runner.processes import Process, idle

_FAKED_CORES = 64
_FAKE = """
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    (void)pid;
    memset(set, 0, size);
    for (int cpu = 0; cpu < %d; cpu++) CPU_SET_S(cpu, size, set);
    return 0;
}
"""

Storage = Callable[[], Mapping[str, str]]


def _role(process: Process, everything: list[Process], driver: int) -> str:
    if process.pid == driver:
        return "driver"
    if process.name == "carril":
        return "head and agent"
    heads = {other.pid for other in everything if other.name == "carril"}
    if process.parent not in heads:
        return "other"
    return "zygote" if "zygote" in process.command else "worker"


def _is_ray_daemon(process: Process) -> bool:
    # Its agents carry names of the same form as its workers.
    return not process.name.startswith("ray::") or process.command.endswith("Agent")


def _driver(everything: list[Process]) -> int:
    return next(process.pid for process in everything if process.parent == os.getpid() and "ours.py" in process.command)


def memory(
    ours: Environment, ray: Environment | None, environment: Storage, timeout_s: float
) -> tuple[dict[str, float], list[Bar]]:
    """PSS in MB by who it is, after one run of two workers."""
    found: dict[str, float] = {}
    with idle([ours.python, "-P", str(BENCHES / "memory" / "ours.py")], environment(), timeout_s) as everything:
        driver = _driver(everything)
        for process in everything:
            if process.pid != driver:
                role = "ours: " + _role(process, everything, driver)
                found[role] = found.get(role, 0.0) + process.pss_bytes() / 1e6
    if ray is not None:
        with idle([ray.python, "-P", str(BENCHES / "memory" / "ray.py")], environment(), timeout_s) as everything:
            for process in everything:
                if "memory/ray.py" not in process.command:
                    who = "ray: daemons" if _is_ray_daemon(process) else "ray: actors that stay"
                    found[who] = found.get(who, 0.0) + process.pss_bytes() / 1e6
    head = found.get("ours: head and agent")
    if head is None:
        raise RuntimeError("no process named `carril` was running beside the idle driver")
    return found, [Bar("head and agent under 30 MB (PSS)", f"{head:.1f} MB", head < 30)]


def _fake_cores(directory: Path) -> Path | None:
    """A library that makes a process believe in more cores, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = directory / "cores.c", directory / "cores.so"
    source.write_text(_FAKE % _FAKED_CORES)
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=False, capture_output=True
    )
    return library if done.returncode == 0 else None


def threads(ours: Environment, environment: Storage, timeout_s: float) -> tuple[dict[str, dict[str, int]], list[Bar]]:
    """Threads by who has them, for each number of cores that the processes believe in."""
    script = [ours.python, "-P", str(BENCHES / "threads" / "ours.py")]
    cores = len(os.sched_getaffinity(0))
    first = min(os.sched_getaffinity(0))
    settings: dict[str, tuple[list[str], dict[str, str]]] = {f"{cores} cores": (script, {})}
    if shutil.which("taskset"):
        settings = {"1 core": (["taskset", "-c", str(first), *script], {}), **settings}
    variables = environment()
    library = _fake_cores(Path(variables["BENCH_STORAGE"]))
    if library is not None:
        settings[f"{_FAKED_CORES} cores (faked)"] = (script, {"LD_PRELOAD": str(library)})

    counts: dict[str, dict[str, int]] = {}
    for setting, (command, extra) in settings.items():
        with idle(command, {**environment(), **extra}, timeout_s) as everything:
            driver = _driver(everything)
            mine: dict[str, int] = {}
            for process in everything:
                role = _role(process, everything, driver)
                mine[role] = max(mine.get(role, 0), process.threads)
            counts[setting] = mine
    ours_only = [{role: count for role, count in mine.items() if role != "other"} for mine in counts.values()]
    same = all(mine == ours_only[0] for mine in ours_only)
    shown = ", ".join(f"{role} {count}" for role, count in sorted(ours_only[0].items()))
    measured = shown if same else "; ".join(f"{setting}: {mine}" for setting, mine in counts.items())
    return counts, [Bar(f"a constant with {', '.join(counts)}", measured, same and len(counts) > 1)]
