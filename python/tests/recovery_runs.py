"""A small training that comes out the same to the last bit, and the faults that are done to it.

The function trains a model with DDP on the CPU and saves a checkpoint at every step. Its data and its weights are
functions of the step and the rank alone, so that a run that was disturbed must end with the weights of one that was
not. A fault fires once in a run: it leaves a witness, a file with the step, and an attempt that finds it goes on.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carril.train import Result, RunConfig, ScalingConfig
from carril.train.torch import TorchTrainer

STEPS = 6

# What a rank dies of, with the code of the failure and what its headline says after the rank.
KINDS = {
    "exception": ("user-exception", "RuntimeError: on purpose"),
    "exit": ("worker-exited", "the worker process left with exit code 1"),
    "SIGKILL": ("worker-killed", "the worker process was ended by SIGKILL"),
    "SIGSEGV": ("worker-exited", "the worker process was ended by SIGSEGV"),
    "memory": ("out-of-memory", "the worker process ran out of memory"),
}
# Where it is then.
PLACES = ("user code", "barrier", "all_reduce", "report", "save")
# A kind, a place and the rank that it happens to.
Cell = tuple[str, str, int]
_FAULT_AT = 3


def learner() -> Callable[[dict[str, Any]], str]:
    """The function. Its config: `steps`, `notes` (a directory), and where wanted `fault`: kind, place, rank, step, witness."""

    def function(config: dict[str, Any]) -> str:
        import ctypes
        import hashlib
        import os
        import signal
        import sys
        import tempfile
        import threading
        import time

        import torch
        import torch.distributed as distributed

        from carril import train
        from carril.train.torch import prepare_model

        rank = train.get_context().get_world_rank()
        asked = config.get("fault")
        # Memory runs out in a second or two: nobody makes steps meanwhile.
        takes_a_while = bool(asked) and asked["kind"] == "memory"
        main = threading.main_thread()

        def note(line: str) -> None:
            # One write to a file that is open for appending: the line is there whatever happens next.
            target = os.open(os.path.join(config["notes"], str(rank)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(target, f"{line}\n".encode())
            os.close(target)

        def fail(*_: object) -> None:
            raise RuntimeError("on purpose")

        def fire(step: int) -> None:
            with open(asked["witness"], "x") as file:
                file.write(str(step))
            if asked["kind"] == "exit":
                os._exit(1)
            elif asked["kind"] == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            elif asked["kind"] == "SIGSEGV":
                ctypes.string_at(0)
            elif asked["kind"] == "memory":
                held = []
                while len(held) < 200:
                    held.append(b"x" * (64 << 20))
                os._exit(99)  # nobody minded
            elif threading.current_thread() is main:
                fail()
            else:
                signal.pthread_kill(main.ident, signal.SIGALRM)

        def wanted(step: int, place: str) -> bool:
            # From that step on: a thread may come too late for a call that is over in a moment.
            return bool(asked) and asked["place"] == place and step >= asked["step"]

        def due(step: int, place: str) -> bool:
            return wanted(step, place) and not fired()

        def fired() -> bool:
            return os.path.exists(asked["witness"])

        def fire_once_inside(step: int, name: str) -> threading.Event:
            """Fires when the main thread is in the function of that name; the event ends the watch."""
            over = threading.Event()

            def watch() -> None:
                while not over.is_set():
                    frame = sys._current_frames()[main.ident]
                    while frame is not None:
                        if frame.f_code.co_name == name:
                            fire(step)
                            return
                        frame = frame.f_back
                    time.sleep(0)

            signal.signal(signal.SIGALRM, fail)
            threading.Thread(target=watch, daemon=True).start()
            return over

        class Trap:
            """The name of a metric, which is asked for its text while it is reported."""

            def __str__(self) -> str:
                fire(step)
                return "trap"

        def meet(step: int, place: str, collective: Any) -> None:
            """A collective in which one rank dies: the others come when it is there."""
            if due(step, place) and rank == asked["rank"]:
                fire_once_inside(step, place)
            elif first == 0 and wanted(step, place) and rank != asked["rank"]:
                # Also where it has fired already: it may live for a while yet.
                while not fired() or takes_a_while:
                    time.sleep(0.002)
            return collective()

        torch.manual_seed(7)
        model = prepare_model(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)))
        plain = getattr(model, "module", model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        first, latest = 0, train.get_checkpoint()
        if latest is not None:
            with latest.as_directory() as directory:
                state = torch.load(os.path.join(directory, "state.pt"), weights_only=True)
            plain.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            first = state["step"] + 1
        note(f"begins {first} {os.getpid()}")
        for step in range(first, config["steps"]):
            mine = bool(asked) and rank == asked["rank"]
            if mine and due(step, "user code"):
                fire(step)
            generator = torch.Generator().manual_seed(1000 * step + rank)
            loss = model(torch.randn(8, 16, generator=generator)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            total = loss.detach().clone()
            meet(step, "all_reduce", lambda total=total: distributed.all_reduce(total))
            optimizer.step()
            meet(step, "barrier", train.collective.barrier)
            metrics: dict[Any, Any] = {"step": step, "loss": total.item()}
            if mine and due(step, "report"):
                metrics[Trap()] = 0.0
            with tempfile.TemporaryDirectory(dir=config["notes"]) as directory:
                saves = mine and due(step, "save")
                if rank == 0:
                    state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, os.path.join(directory, "state.pt"))
                with open(os.path.join(directory, f"shard-{rank}"), "wb") as file:
                    # Large enough for the thread to come in time.
                    file.write(bytes(64 << 20 if saves else 16))
                over = fire_once_inside(step, "_take") if saves else None
                train.report(metrics, checkpoint=train.Checkpoint(directory))
                if over is not None:
                    over.set()
                    while fired() and takes_a_while:
                        time.sleep(0.002)
            note(f"made {step} {os.getpid()}")
            # Nobody begins a step before all have reported the last one: then it is sure what is kept.
            train.collective.barrier()
        weights = b"".join(tensor.numpy().tobytes() for tensor in plain.state_dict().values())
        return hashlib.sha256(weights).hexdigest()

    return function


class Learning:
    """One run of that function, below a directory of its own."""

    def __init__(self, directory: Path, steps: int = STEPS, workers: int = 2) -> None:
        self.directory, self.steps, self.workers = directory, steps, workers
        self.notes = directory / "notes"
        self.notes.mkdir(parents=True, exist_ok=True)
        self.witness = directory / "witness"

    def trainer(self, cell: Cell | None = None, **run: Any) -> TorchTrainer:
        given = None
        if cell is not None:
            kind, place, rank = cell
            given = {"kind": kind, "place": place, "rank": rank, "step": _FAULT_AT, "witness": str(self.witness)}
        return TorchTrainer(
            learner(),
            train_loop_config={"steps": self.steps, "notes": str(self.notes), "fault": given},
            scaling_config=ScalingConfig(num_workers=self.workers),
            run_config=RunConfig(name="run", storage_path=self.directory, **run),
        )

    def begins(self, rank: int) -> list[tuple[int, int]]:
        """The first step and the process of each attempt that came to its first step."""
        return [(int(step), int(pid)) for what, step, pid in self._rows(rank) if what == "begins"]

    def made(self, rank: int) -> list[int]:
        """The steps that were made, in order."""
        return [int(step) for what, step, _ in self._rows(rank) if what == "made"]

    def _rows(self, rank: int) -> list[list[str]]:
        path = self.notes / str(rank)
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def kept(self) -> list[int]:
        """The steps of the checkpoints, in order. Each of them must be whole: our command reads it."""
        command = [str(Path(sys.executable).parent / "carril"), "verify", str(self.directory / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        manifests = (self.directory / "run").glob("*/.manifest.json")
        return sorted(int(json.loads(path.read_text())["metrics"]["step"]) for path in manifests)

    def left(self) -> list[str]:
        """What lies in the run's directory and should not: damaged checkpoints, and what was on its way to one."""
        run = self.directory / "run"
        return [path.name for path in (*run.glob("*.damaged"), *(run / ".staging").rglob("*")) if not path.is_dir()]

    def check_recovered(self, result: dict[str, Any], cell: Cell, weights: str) -> None:
        """What must be true of a run in which one rank died once; `result` is what `told` made of its Result."""
        kind, place, rank = cell
        code, text = KINDS[kind]
        died_at = int(self.witness.read_text())
        assert died_at >= _FAULT_AT
        (restart,) = result["restarts"]
        assert restart["attempt"] == 1 and restart["code"] == code
        assert restart["reason"].startswith(f"rank {rank} failed: {text}"), restart
        # A rank that dies while it saves may have reported already; else nobody has that step.
        allowed = (died_at, died_at + 1) if place == "save" else (died_at,)
        for each in range(self.workers):
            (first, before), (resumed, after) = self.begins(each)
            assert first == 0 and resumed in allowed and before != after, self.begins(each)
        steps = list(range(self.steps))
        assert [row["step"] for row in result["rows"]] == steps
        assert [row["training_iteration"] for row in result["rows"]] == [step + 1 for step in steps]
        times = [row["time_total_s"] for row in result["rows"]]
        assert times == sorted(times) and times[0] > 0, times
        since = [row["iterations_since_restore"] for row in result["rows"]]
        assert since == [*range(1, resumed + 1), *range(1, self.steps - resumed + 1)], since
        assert result["weights"] == weights
        assert self.kept() == steps
        assert self.left() == []


def told(result: Result) -> dict[str, Any]:
    """What `check_recovered` looks at, in a form that can be written to a file."""
    weights = weights_of(result)
    assert weights == result.return_value
    return {"restarts": result.restarts, "rows": result.rank_metrics(0), "weights": weights}


def weights_of(result: Result) -> str:
    """The digest of the weights in the newest checkpoint, which is that of the model at the end."""
    import torch

    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        state = torch.load(Path(directory) / "state.pt", weights_only=True)
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in state["model"].values())).hexdigest()


def journal_of(run: Path) -> list[dict[str, Any]]:
    """What the heads of a run have decided, in order."""
    records = []
    for segment in sorted((run / "journal").glob("*.log")):
        records.extend(json.loads(line.split(" ", 1)[1]) for line in segment.read_text().splitlines())
    return records
