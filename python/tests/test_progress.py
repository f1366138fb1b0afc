"""How far a run is and when it will be done: said by the function, shown by the live view."""

import time

import pytest
from driver_scripts import Scripts, scripts_fixture  # noqa: F401
from terminals import Terminals, terminals_fixture  # noqa: F401

from carril import train
from carril.train._console_view import View

STANDING = {"done": None, "total": 0.0, "behind": [], "reports_behind": 0, "usage": None, "data": "", "epoch": 0}


def view(**standing: object) -> View:
    made = View("name")
    made.state = "running"
    made.stands({**STANDING, **standing})
    return made


def test_what_the_function_says_is_shown_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    made = view(done=10.0, total=100.0)
    assert made.outlook() == ["10 %"]
    now = 110.0
    made.stands({**STANDING, "done": 30.0, "total": 100.0})
    assert made.outlook() == ["30 %", "0:35 left"]
    # After a restart less is done: what was before counts no more.
    made.stands({**STANDING, "done": 5.0, "total": 100.0})
    now = 115.0
    made.stands({**STANDING, "done": 10.0, "total": 100.0})
    assert made.outlook() == ["10 %", "1:30 left"]
    made.stands(STANDING)
    assert made.outlook() == []


def test_without_it_the_rate_and_the_median_time_of_a_report_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    made = View("name")
    made.state = "running"
    for iteration, at in enumerate([100.0, 102.0, 104.0, 109.0], start=1):
        now = at
        made.progressed(iteration, {"loss": 1.0}, {})
    assert made.facts() == ["report 4", "0.3/s", "2.0 s each"]


def test_ranks_that_lag_and_what_the_group_uses_are_named() -> None:
    usage = {"cpus": 3.14, "memory": 1_234_000_000, "gpus": 0, "gpu_percent": 0.0, "gpu_memory": 0}
    made = view(behind=[3], reports_behind=2, usage=usage)
    assert made.group() == ["rank 3 is 2 reports behind", "3.1 CPUs · 1.2 GB"]
    assert made.block(80, False)[-1] == "  rank 3 is 2 reports behind · 3.1 CPUs · 1.2 GB"
    devices = {**usage, "gpus": 2, "gpu_percent": 45.0, "gpu_memory": 30_000_000_000}
    assert view(behind=[1, 2], reports_behind=5, usage=devices).group() == [
        "ranks 1, 2 are up to 5 reports behind",
        "3.1 CPUs · 1.2 GB · 2 GPUs at 45 %, 30.0 GB",
    ]
    made.state = "finished"
    assert made.group() == []


def test_a_run_says_how_far_it_is_and_what_it_uses(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start("""
        import os, time
        from carril import train

        def loop():
            step = 0
            while not os.path.exists("seen"):
                step += 1
                train.get_context().set_progress(step, 1_000_000)
                time.sleep(0.001)
            train.get_context().set_progress(10, 10)

        train.DataParallelTrainer(
            loop, scaling_config=train.ScalingConfig(num_workers=2), run_config=train.RunConfig(name="far")
        ).fit()
    """)
    terminal.wait_for("0 % · ")
    terminal.wait_for(" left")
    terminal.wait_for(" CPUs · ")
    (scripts.directory / "seen").touch()
    assert terminal.finish() == 0, terminal.everything


def test_a_run_that_says_nothing_shows_how_far_its_epoch_is(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start("""
        import os, time
        from carril import data, train

        def loop():
            shard = train.get_dataset_shard("train")
            for epoch in range(3):
                for number, batch in enumerate(shard.iter_batches(batch_size=100)):
                    while epoch == 1 and number == 30 and not os.path.exists("seen"):
                        time.sleep(0.01)
                    time.sleep(0.01)

        train.DataParallelTrainer(
            loop,
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="far"),
            datasets={"train": data.range(20_000).random_shuffle(seed=1)},
        ).fit()
    """)
    terminal.wait_for("epoch 0 of `train` ")
    terminal.wait_for(" left in it")
    terminal.wait_for("epoch 1 of `train` ")
    (scripts.directory / "seen").touch()
    assert terminal.finish() == 0, terminal.everything


@pytest.mark.parametrize(("done", "total"), [(1, 0), (-1, 5), (1, float("inf")), (float("nan"), 3)])
def test_progress_that_cannot_be_is_refused(done: float, total: float) -> None:
    def loop() -> str:
        try:
            train.get_context().set_progress(done, total)
        except ValueError as error:
            return str(error)
        return ""

    trainer = train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0))
    assert "`total` must be more than 0" in trainer.fit().return_value
