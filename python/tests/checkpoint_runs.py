"""What the tests of checkpoints share: a function that saves, and a reader of what was kept that is none of our code.

The function saves a step after the other, in each the file `step` that all ranks have in common and a shard of each
rank. It begins after the step that `get_checkpoint()` gives: so a test sees in what a run returns where it resumed.
"""

import json
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from carril.train import Result


def saves() -> Callable[[dict[str, Any]], int]:
    """A function for trainers. Its config: `steps`, and where wanted `fail_at`, `mode`, `size` (bytes of a shard)."""

    def function(config: dict[str, Any]) -> int:
        import os
        import shutil
        import tempfile

        from carril import train

        rank = train.get_context().get_world_rank()
        first, latest = 0, train.get_checkpoint()
        if latest is not None:
            with latest.as_directory() as directory, open(os.path.join(directory, "step")) as file:
                first = int(file.read()) + 1
        for step in range(first, config["steps"]):
            directory = tempfile.mkdtemp()
            os.mkdir(os.path.join(directory, "shards"))
            with open(os.path.join(directory, "step"), "w") as file:
                file.write(str(step))
            with open(os.path.join(directory, "shards", str(rank)), "w") as file:
                file.write(f"{rank} of {step} ".ljust(config.get("size", 0), "x"))
            train.report(
                {"step": step, "rank": rank},
                checkpoint=train.Checkpoint.from_directory(directory),
                checkpoint_upload_mode=config.get("mode", "SYNC"),
            )
            shutil.rmtree(directory, ignore_errors=True)
            if config.get("fail_at") == step:
                train.collective.barrier()
                raise RuntimeError("on purpose")
        return first

    return function


def step_of(checkpoint: Any) -> int:
    """The step that a checkpoint of this function is of, read from its files."""
    with checkpoint.as_directory() as directory:
        return int(Path(directory, "step").read_text())


@cache
def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


def crc32c(data: bytes) -> str:
    """The CRC-32C, as eight hexadecimal digits."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return f"{crc ^ 0xFFFFFFFF:08x}"


def manifest_of(checkpoint: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, whose files must be just what it says."""
    text = (checkpoint / ".manifest.json").read_text().rstrip("\n")
    body, _, rest = text.rpartition(',"checksum":"')
    assert rest == f'{crc32c(f"{body}}}".encode())}"}}', f"the checksum of {checkpoint}'s manifest"
    manifest: dict[str, Any] = json.loads(text)
    there = {str(path.relative_to(checkpoint)): path for path in checkpoint.rglob("*") if path.is_file()}
    said = {file["path"]: file for file in manifest["files"]}
    assert set(there) - {".manifest.json", ".metadata.json"} == set(said)
    for name, file in said.items():
        data = there[name].read_bytes()
        assert len(data) == file["size"], name
        assert file["crc32c"] is None or crc32c(data) == file["crc32c"], name
    return manifest


def committed_steps(run: Path) -> list[int]:
    """The steps of all checkpoints of a run, in order of their iterations. Each of them must be whole."""
    directories = [path.parent for path in run.glob("*/.manifest.json") if path.parent.suffix != ".damaged"]
    manifests = [manifest_of(directory) for directory in directories]
    return [one["metrics"]["step"] for one in sorted(manifests, key=lambda one: int(one["iteration"]))]


class InBackground:
    """A `fit()` in a thread, while the test does something to it."""

    def __init__(self, fit: Callable[[], Result]) -> None:
        self.result: Result | None = None
        self.error: BaseException | None = None
        self._fit = fit
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._fit()
        except BaseException as error:
            self.error = error

    def is_in(self, function: str) -> bool:
        """Whether the thread is in a function of that name now."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None and frame.f_code.co_name != function:
            frame = frame.f_back
        return frame is not None

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def ends_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return self.is_over

    def finish(self) -> Result:
        """The result; what was raised is raised here."""
        self._thread.join(60)
        assert self.is_over, "fit() did not return within 60 s"
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result
