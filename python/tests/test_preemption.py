"""A scheduler takes the machine: its signal becomes a last checkpoint, `fit()` raises, and the same command goes on.

The drivers are scripts of their own, since the signals are theirs. Rank 0 writes a line for every step that it makes:
over all runs of the command there must be each step once.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from driver_scripts import Script, Scripts, scripts_fixture, values, wait_until  # noqa: F401
from faulty_proxy import FaultyProxy
from s3_server import Place, place_fixture, proxied_fixture, s3_fixture  # noqa: F401

AS_RAY = (str(Path(sys.executable).parent / "carril"), "as-ray", "--")
STEPS = 40

COMMON = """
    import json, os, signal, sys, threading, time
    {imports}

    def place_of(name):
        return os.path.join(os.environ["PLACE"], name)

    def resumes():
        latest = train.get_checkpoint()
        if latest is None:
            return 0
        with latest.as_directory() as directory, open(os.path.join(directory, "step")) as file:
            return int(file.read()) + 1

    def makes(step):
        # Slow enough to be interrupted, until the test has nothing more to interrupt.
        time.sleep(0 if os.path.exists(place_of("hurry")) else 0.05)
        train.collective.barrier()
        if train.get_context().get_world_rank() == 0:
            with open(place_of("steps"), "a") as file:
                file.write(f"{{step}}\\n")

    def saves(step, with_checkpoint=True):
        rank = train.get_context().get_world_rank()
        directory = place_of(f"mine-{{rank}}")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "step"), "w") as file:
            file.write(str(step))
        given = train.Checkpoint.from_directory(directory) if with_checkpoint and rank == 0 else None
        train.report({{"step": step}}, checkpoint=given)

    def never_looks(config):
        for step in range(resumes(), 40):
            makes(step)
            saves(step)

    def looks_and_returns(config):
        for step in range(resumes(), 40):
            if train.get_preemption_info() is not None:
                return step
            makes(step)
            saves(step)

    def looks_and_saves(config):
        # A checkpoint only when somebody asks for one, and at the end.
        for step in range(resumes(), 40):
            makes(step)
            told = train.get_preemption_info()
            saves(step, told is not None or step == 39)
            rank = train.get_context().get_world_rank()
            assert told is None or rank != 0, "a report with the last checkpoint does not return"

    def never_saves(config):
        for step in range(40):
            makes(step)
            saves(step, False)
            open(place_of("up"), "w").close()
        while True:
            time.sleep(0.01)

    def fit(function, grace=30.0, workers=2, storage=None):
        return Trainer(
            function,
            train_loop_config={{}},
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(
                name="run",
                storage_path=storage or place_of("runs"),
                failure_config=train.FailureConfig(preemption_grace_s=grace),
            ),
        ).fit()

    def told(error):
        # As one line: the test reads it back.
        print("\\ntold=" + json.dumps([type(error).__name__, error.code, error.origin, error.retryable, str(error)]))
        print(f"late={{error.drain_timed_out}}\\nwhose={{error.preemption_info.preempted_ranks}}")
        sys.stdout.flush()
"""
NATIVE = "from carril import train; from carril.train import DataParallelTrainer as Trainer"
RAY = (
    "from ray import train; import ray.train.collective; "
    "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer as Trainer"
)
MAIN = """
    if __name__ == "__main__":
        try:
            result = fit(globals()[sys.argv[1]], *map(float, sys.argv[2:]))
            print(f"\\nstep={result.metrics['step']}", flush=True)
        except train.PreemptionError as error:
            told(error)
"""


class Job:
    """A script that is started again and again in the same place."""

    def __init__(self, scripts: Scripts, main: str = MAIN, imports: str = NATIVE, before: tuple[str, ...] = ()) -> None:
        self._scripts, self._before = scripts, before
        self._source = COMMON.format(imports=imports) + main
        self.place = scripts.directory / "place"
        self.place.mkdir()

    def start(self, *arguments: str) -> Script:
        return self._scripts.start(self._source, *arguments, before=self._before, PLACE=str(self.place))

    def start_up_to(self, step: int, *arguments: str) -> Script:
        """The script, when rank 0 has made that step."""
        script = self.start(*arguments)
        wait_until(lambda: str(step) in self.steps, f"step {step} is made", lambda: script.output)
        return script

    @property
    def steps(self) -> list[str]:
        path = self.place / "steps"
        return path.read_text().split() if path.exists() else []

    def preempted(self, script: Script) -> str:
        """The text of the PreemptionError with which `fit()` has ended."""
        import json

        assert script.finish() == 0, script.output
        name, code, origin, retryable, text = json.loads(values(script.output)["told"])
        assert (name, code, origin, retryable) == ("PreemptionError", "preempted", "preemption", True)
        script.is_alone()
        return str(text)

    def goes_on(self, *arguments: str) -> None:
        """The same command makes the rest: no step is lost, and none is made twice."""
        made = len(self.steps)
        assert 0 < made < STEPS
        (self.place / "hurry").touch()
        script = self.start(*arguments)
        assert script.finish() == 0, script.output
        assert values(script.output)["step"] == str(STEPS - 1)
        assert self.steps == [str(step) for step in range(STEPS)]


def everybody(script: Script) -> list[int]:
    return [found.pid for found in script.related()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2], ids=lambda number: number.name)
@pytest.mark.parametrize("target", ["driver", "agent"])
def test_a_signal_becomes_a_last_checkpoint_and_the_same_command_goes_on(
    scripts: Scripts, number: signal.Signals, target: str
) -> None:
    job = Job(scripts)
    script = job.start_up_to(3, "never_looks")
    os.kill(script.pid if target == "driver" else script.head().pid, number)
    text = job.preempted(script)
    last = int(job.steps[-1])
    first, hint = text.splitlines()
    assert first == (
        f"preempted: {number.name} to the {target}; the last checkpoint is "
        f"`{job.place}/runs/run/checkpoint_{last:06d}`, of report {last + 1}"
    )
    assert hint.startswith("hint: ") and "goes on from there" in hint
    assert "the ranks have 30 s to report a last checkpoint" in script.output
    job.goes_on("never_looks")


@pytest.mark.parametrize("function", ["never_looks", "looks_and_returns", "looks_and_saves"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_every_process_of_the_job_is_signalled_at_once(scripts: Scripts, function: str, number: signal.Signals) -> None:
    job = Job(scripts)
    script = job.start_up_to(3, function)
    pids = everybody(script)
    assert len(pids) == 5, "driver, head, zygote, two workers"
    for pid in pids:
        os.kill(pid, number)
    text = job.preempted(script)
    assert text.startswith(f"preempted: {number.name} to the "), text
    # The ranks may look at different moments: one that has returned is then missed by the other.
    assert " failed" not in text or function == "looks_and_returns", text
    job.goes_on(function)


def test_as_ray_too(scripts: Scripts) -> None:
    job = Job(scripts, imports=RAY, before=AS_RAY)
    script = job.start_up_to(3, "never_looks")
    for pid in everybody(script):
        os.kill(pid, signal.SIGTERM)
    assert "preempted: SIGTERM to the " in job.preempted(script)
    job.goes_on("never_looks")


def test_a_function_that_never_saves_has_its_grace_and_no_more(scripts: Scripts) -> None:
    job = Job(scripts)
    script = job.start("never_saves", "1.5")
    wait_until(lambda: (job.place / "up").exists(), "the function runs", lambda: script.output)
    began = time.monotonic()
    os.kill(script.pid, signal.SIGTERM)
    text = job.preempted(script)
    assert 1.5 <= time.monotonic() - began < 15
    assert "no last checkpoint came in time; there is no checkpoint" in text
    found = values(script.output)
    assert (found["late"], found["whose"]) == ("True", "[0, 1]")


def test_more_signals_change_nothing(scripts: Scripts) -> None:
    job = Job(scripts)
    script = job.start("never_saves", "1.5")
    wait_until(lambda: (job.place / "up").exists(), "the function runs", lambda: script.output)
    os.kill(script.pid, signal.SIGUSR1)
    script.wait_for("preempted: SIGUSR1 to the driver")
    for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGTERM):
        os.kill(script.pid, number)
        os.kill(script.head().pid, number)
    assert "preempted: SIGUSR1 to the driver; no last checkpoint came in time; there is no checkpoint" in job.preempted(
        script
    )
    assert script.output.count("to report a last checkpoint") == 1


LOOKS = """
    def says(config):
        train.collective.barrier()
        open(place_of("up"), "w").close()
        while train.get_preemption_info() is None:
            time.sleep(0.005)
        info = train.get_preemption_info()
        print(f"left={{0 < info.deadline_ms / 1000 - time.time() <= 12}}", flush=True)
        print(f"ranks={{info.preempted_ranks}}", flush=True)

    if __name__ == "__main__":
        try:
            fit(says, 12.0)
        except train.PreemptionError as error:
            told(error)
"""


def test_the_function_is_told_until_when_and_who(scripts: Scripts) -> None:
    job = Job(scripts, LOOKS.replace("{{", "{").replace("}}", "}"))
    script = job.start()
    wait_until(lambda: (job.place / "up").exists(), "the function runs", lambda: script.output)
    os.kill(script.pid, signal.SIGTERM)
    job.preempted(script)
    found = values(script.output)
    assert found["left0"] == found["left1"] == "True" and found["ranks0"] == found["ranks1"] == "[0, 1]"


HANDLERS = """
    if __name__ == "__main__":
        calls = []
        own = lambda number, frame: calls.append(number)
        signal.signal(signal.SIGUSR1, own)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        try:
            fit(never_looks)
        except train.PreemptionError as error:
            told(error)
        print(f"calls={calls == [signal.SIGUSR1]}")
        print(f"usr1={signal.getsignal(signal.SIGUSR1) is own}")
        print(f"usr2={signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN}")
        print(f"term={signal.getsignal(signal.SIGTERM) == signal.SIG_DFL}", flush=True)
        signal.raise_signal(signal.SIGUSR1)
        print(f"again={len(calls)}", flush=True)
"""


def test_the_driver_s_own_handlers_are_called_and_are_as_before_afterwards(scripts: Scripts) -> None:
    job = Job(scripts, HANDLERS)
    script = job.start_up_to(3)
    os.kill(script.pid, signal.SIGUSR2)
    wait_until(lambda: "8" in job.steps, "what the driver ignores changes nothing", lambda: script.output)
    os.kill(script.pid, signal.SIGUSR1)
    assert "preempted: SIGUSR1 to the driver" in job.preempted(script)
    found = values(script.output)
    assert (found["calls"], found["usr1"], found["usr2"], found["term"], found["again"]) == (*["True"] * 4, "2")


THREAD = """
    if __name__ == "__main__":
        def work():
            try:
                fit(never_looks)
            except train.PreemptionError as error:
                told(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        kept = all(signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGUSR1))
        print(f"kept={kept}", flush=True)
"""


def test_a_fit_in_another_thread_hears_of_it_through_the_agent(scripts: Scripts) -> None:
    job = Job(scripts, THREAD)
    script = job.start_up_to(3)
    os.kill(script.head().pid, signal.SIGTERM)
    assert "preempted: SIGTERM to the agent" in job.preempted(script)
    assert values(script.output)["kept"] == "True"


def test_a_head_that_is_lost_meanwhile_is_told_again(scripts: Scripts) -> None:
    job = Job(scripts)
    script = job.start("never_saves", "4")
    wait_until(lambda: (job.place / "up").exists(), "the function runs", lambda: script.output)
    os.kill(script.pid, signal.SIGTERM)
    script.wait_for("preempted: SIGTERM to the driver")
    os.kill(script.head().pid, signal.SIGKILL)
    assert "preempted: SIGTERM to the driver; no last checkpoint came in time; there is no checkpoint" in job.preempted(
        script
    )
    assert "the head has gone and is started again" in script.output


WAITS_FOR_ROOM = """
    import carril

    def waits(config):
        open(place_of("up"), "w").close()
        while not os.path.exists(place_of("go")):
            time.sleep(0.005)

    if __name__ == "__main__":
        carril.init(num_cpus=2)
        first = threading.Thread(target=lambda: Trainer(waits, train_loop_config={}, scaling_config=train.ScalingConfig(num_workers=2)).fit())
        first.start()
        while not os.path.exists(place_of("up")):
            time.sleep(0.005)
        try:
            fit(never_looks)
        except train.PreemptionError as error:
            told(error)
        open(place_of("go"), "w").close()
        first.join()
"""


def test_a_run_that_waits_for_room_ends_at_once(scripts: Scripts) -> None:
    job = Job(scripts, WAITS_FOR_ROOM)
    script = job.start()
    script.wait_for("carril: waiting: ")
    os.kill(script.pid, signal.SIGTERM)
    assert "preempted: SIGTERM to the driver; there is no checkpoint" in job.preempted(script)
    assert job.steps == []


CHILDREN = """
    import multiprocessing, torch
    from torch.utils.data import DataLoader, Dataset
    from carril.train.torch import TorchTrainer as Trainer, prepare_data_loader

    class Numbers(Dataset):
        begun = 0

        def __len__(self):
            return 100_000

        def __getitem__(self, index):
            return torch.tensor([index, Numbers.begun])

    def begins(number):
        Numbers.begun = 7

    def serves(pipe):
        while True:
            pipe.send(pipe.recv() + 1)

    def with_children(config):
        data = DataLoader(Numbers(), batch_size=2, num_workers=2, worker_init_fn=begins)
        batches = iter(prepare_data_loader(data))
        here, there = multiprocessing.get_context("fork").Pipe()
        child = multiprocessing.get_context("fork").Process(target=serves, args=(there,), daemon=True)
        child.start()
        after = 0
        for step in range(resumes(), 40):
            assert next(batches)[0, 1] == 7, "the loader's own function was called too"
            here.send(step)
            assert here.poll(20) and here.recv() == step + 1
            makes(step)
            after += train.get_preemption_info() is not None
            saves(step, after > 5 or step == 39)

    if __name__ == "__main__":
        try:
            result = fit(with_children)
            print(f"\\nstep={result.metrics['step']}", flush=True)
        except train.PreemptionError as error:
            told(error)
"""


def test_the_children_of_the_workers_outlive_the_signal_too(scripts: Scripts) -> None:
    job = Job(scripts, CHILDREN)
    script = job.start_up_to(3)
    pids = everybody(script)
    assert len(pids) >= 5 + 2 * 3, "each rank has two processes of its loader and one of its own"
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    text = job.preempted(script)
    assert "preempted: SIGTERM to the " in text and " failed" not in text, text
    job.goes_on()


ENDS_ITS_CHILD = """
    import multiprocessing

    def waits(pipe):
        pipe.send("up")
        pipe.recv()

    def ends_its_child(config):
        here, there = multiprocessing.get_context("fork").Pipe()
        child = multiprocessing.get_context("fork").Process(target=waits, args=(there,))
        child.start()
        assert here.recv() == "up"
        while open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.005)  # until it is in the call of the system that waits
        child.terminate()
        child.join(10)
        print(f"\\ncode={child.exitcode}", flush=True)
        child.kill()

    if __name__ == "__main__":
        fit(ends_its_child, workers=1)
"""


def test_a_worker_can_still_end_its_own_children(scripts: Scripts) -> None:
    script = Job(scripts, ENDS_ITS_CHILD).start()
    assert script.finish() == 0, script.output
    assert values(script.output)["code0"] == str(-signal.SIGTERM), "the signals of its parent are no preemption"


LOSES = """
    if __name__ == "__main__":
        try:
            result = fit(never_looks, storage=sys.argv[1])
            print(f"\\nstep={result.metrics['step']}", flush=True)
        except train.PreemptionError as error:
            told(error)
"""


def test_a_last_checkpoint_that_the_storage_loses_is_made_once_more(
    scripts: Scripts, place: Place, proxied: Callable[..., FaultyProxy]
) -> None:
    proxy = proxied()
    job = Job(scripts, LOSES)
    script = job.start_up_to(3, place.uri)
    hold = proxy.hold("PUT .*checkpoint_")
    wait_until(lambda: hold.waiting, "a checkpoint is being stored", lambda: script.output)
    under_way = int(job.steps[-1])
    for number in range(under_way, under_way + 2):
        proxy.refuse(f"PUT .*checkpoint_{number:06d}/step")
    os.kill(script.pid, signal.SIGTERM)
    script.wait_for("to report a last checkpoint")
    hold.release()
    text = job.preempted(script)
    assert proxy.injected["refused with 403 AccessDenied"], proxy.injected
    assert "was not stored" in script.output
    last = int(job.steps[-1])
    assert last > under_way and f"checkpoint_{last:06d}`, of report {last + 1}" in text, text
    job.goes_on(place.uri)
