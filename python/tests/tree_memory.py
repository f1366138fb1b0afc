"""The memory of everything that a script has started, sampled while it runs: driver, head, agents, workers, mappers.

A page that several processes share counts once in all (`Pss` of /proc/*/smaps_rollup is each process's part of it). The peak
is that of the sum, and not the sum of the peaks.
"""

import threading
from pathlib import Path

from driver_scripts import Process, Script

_SAMPLE_EVERY_S = 0.1


def pss_bytes(pid: int) -> int:
    """Nothing for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


class PeakMemory(threading.Thread):
    """Samples until `finish`; `peak` is the largest sum, and `at_peak` the processes that it was the sum of."""

    def __init__(self, script: Script) -> None:
        super().__init__(daemon=True)
        self._script, self._done = script, threading.Event()
        self.samples, self.peak = 0, 0
        self.at_peak: list[tuple[int, Process]] = []

    def run(self) -> None:
        while not self._done.wait(_SAMPLE_EVERY_S):
            found = [(pss_bytes(process.pid), process) for process in self._script.related()]
            total = sum(size for size, _ in found)
            self.samples += 1
            if total > self.peak:
                self.peak, self.at_peak = total, found

    def finish(self) -> "PeakMemory":
        self._done.set()
        self.join()
        return self

    def __str__(self) -> str:
        largest = sorted(self.at_peak, key=lambda found: -found[0])
        lines = [f"  {size / 1e6:7.1f} MB  {process.command[:100]}" for size, process in largest]
        return "\n".join([f"peak PSS of the whole tree: {self.peak / 1e6:,.0f} MB in {self.samples} samples", *lines])
