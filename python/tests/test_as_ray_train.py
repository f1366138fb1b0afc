"""What scripts written for Ray Train rely on, under `carril as-ray`: data dealt by a class of their own, checkpoints of other
ranks, metrics of today's generation, the callbacks and the trainer of 1.x, deprecations, storage behind a URI with a query.

Each test runs a script as a user does; what the script checks itself it asserts itself.
"""

import json

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server, s3_fixture  # noqa: F401

from carril._internal.command import find_command

AS_RAY = (find_command(), "as-ray", "--num-cpus", "4", "--")

BEGIN = """
    import os, pickle, tempfile
    import ray
    from ray import train
    from ray.train import Checkpoint, DataConfig, Result, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def saved(value):
        directory = tempfile.mkdtemp()
        with open(os.path.join(directory, "value.pkl"), "wb") as file:
            pickle.dump(value, file)
        return Checkpoint.from_directory(directory)

    def value_of(checkpoint):
        with checkpoint.as_directory() as directory, open(os.path.join(directory, "value.pkl"), "rb") as file:
            return pickle.load(file)

    def fit(function, name=None, storage="runs", workers=2, **trainer):
        run_config = RunConfig(name=name, storage_path=storage if "://" in storage else os.path.abspath(storage))
        scaling_config = ScalingConfig(num_workers=workers)
        return DataParallelTrainer(function, scaling_config=scaling_config, run_config=run_config, **trainer).fit()
"""


def run(scripts: Scripts, body: str, **changes: str) -> str:
    """The output of a script that begins as above; `changes` are for its environment."""
    return scripts.run(BEGIN + body, before=AS_RAY, **changes)


def test_a_data_config_of_the_scripts_own_deals_the_rows(scripts: Scripts) -> None:
    run(
        scripts,
        """
    class Own(DataConfig):
        def configure(self, datasets, world_size, worker_handles, worker_node_ids, **kwargs):
            assert len(worker_node_ids) == world_size
            parts = datasets["train"].streaming_split(world_size, equal=False)
            return [{"train": datasets["train"].limit(3).iterator() if rank == 0 else parts[rank]} for rank in range(2)]

    class Base(DataConfig):
        def configure(self, *args, **kwargs):
            return super().configure(*args, **kwargs)

    def loop():
        rows = sum(len(batch["id"]) for batch in train.get_dataset_shard("train").iter_batches())
        reported = train.collective.broadcast_from_rank_zero(rows)
        try:
            train.get_dataset_shard("other")
        except KeyError:
            return reported

    if __name__ == "__main__":
        for config, rows in ((Own(), 3), (Base(), 5), (Base(datasets_to_split=[]), 10)):
            result = fit(loop, datasets={"train": lambda: ray.data.range(10)}, dataset_config=config)
            assert result.return_value == rows, (config, result.return_value)
        print("told=" + str(DataConfig(execution_options={}).deals_itself))
    """,
    )


def test_execution_options_may_be_given_by_data_set(scripts: Scripts) -> None:
    run(
        scripts,
        """
    from ray.data import ExecutionOptions

    def loop():
        limits = [train.get_dataset_shard(name).get_context().execution_options for name in ("train", "val")]
        assert limits[0].resource_limits.cpu == 3, limits
        assert limits[1].resource_limits == DataConfig.default_ingest_options().resource_limits, limits

    if __name__ == "__main__":
        options = ExecutionOptions()
        options.resource_limits = options.resource_limits.copy(cpu=3)
        datasets = {"train": ray.data.range(4), "val": ray.data.range(4)}
        fit(loop, datasets=datasets, dataset_config=DataConfig(execution_options={"train": options}))
    """,
    )


def test_metrics_of_checkpoints_are_what_was_reported_and_every_rank_sees_all(scripts: Scripts) -> None:
    run(
        scripts,
        """
    def loop():
        rank = train.get_context().get_world_rank()
        # Fields of these names are the script's own where it reports them.
        own = {"loss": 1, "training_iteration": 7, "done": False}
        train.report(own, checkpoint=saved(rank) if rank == 0 else None)
        if rank == 1:
            # This rank has reported none, and may be ahead of the one that has.
            assert [one.metrics for one in train.get_all_reported_checkpoints()] == [own]
        train.report({"loss": 2}, checkpoint=None)

    if __name__ == "__main__":
        own = {"loss": 1, "training_iteration": 7, "done": False}
        result = fit(loop, name="own")
        assert result.metrics == {"loss": 2} and result.best_checkpoints[0][1] == own, result
        assert f"metrics={{'loss': 2}}" in repr(result) and repr(result.checkpoint) in repr(result), repr(result)
        again = Result.from_path(result.path)
        assert again.metrics == {"loss": 2} and again.best_checkpoints[0][1] == own, again
    """,
    )


LIBRARY = """
    try:
        from ray.air import session
        import ray.air.config
    except ImportError:
        session = None
"""

OLDER = """
    import tempfile
    {first}
    from ray.train import Checkpoint, RunConfig, ScalingConfig
    from ray.train.data_parallel_trainer import DataParallelTrainer

    def loop():
        {inside}
        from ray import train
        train.report({{"loss": 1}}, checkpoint=Checkpoint.from_dict({{}}))

    if __name__ == "__main__":
        result = DataParallelTrainer(loop, run_config=RunConfig(storage_path=tempfile.mkdtemp())).fit()
        assert ("time_total_s" in result.metrics) == ("time_total_s" in result.best_checkpoints[0][1])
        print("fields=" + ",".join(sorted(name for name in result.metrics if name.startswith(("_", "episodes", "timesteps")))))
"""
FIELDS = "_time_this_iter_s,_timestamp,_training_iteration,episodes_total,timesteps_since_restore,timesteps_total"


@pytest.mark.parametrize(
    ("first", "inside", "fields"),
    [
        ("import some_library", "pass", ""),
        ("import some_library; from ray.air import session", "pass", FIELDS),
        ("from ray.air.config import RunConfig as _", "pass", FIELDS),
        ("import ray.train", "from ray.air import session", FIELDS),
    ],
    ids=["only a library", "after a library", "a configuration", "inside the function"],
)
def test_the_older_generation_is_told_by_what_the_script_names(
    scripts: Scripts, first: str, inside: str, fields: str
) -> None:
    packages = scripts.directory / "site-packages"
    packages.mkdir()
    (packages / "some_library.py").write_text("\n".join(line[4:] for line in LIBRARY.splitlines()))
    output = scripts.run(OLDER.format(first=first, inside=inside), before=AS_RAY, PYTHONPATH=str(packages))
    assert values(output)["fields"] == fields


def test_two_ranks_with_one_file_are_warned_of_and_an_empty_directory_is_taken(scripts: Scripts) -> None:
    output = run(
        scripts,
        """
    def loop():
        rank = train.get_context().get_world_rank()
        for _ in range(2):
            train.report({}, checkpoint=saved(f"of rank {rank}" * (rank + 1)))
        train.report({}, checkpoint=Checkpoint.from_directory(tempfile.mkdtemp()))
        later = train.get_context().get_storage().build_checkpoint_path_from_name("later")
        train.report({}, checkpoint=Checkpoint(later), checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD)

    if __name__ == "__main__":
        result = fit(loop)
        kept = [checkpoint for checkpoint, _ in result.best_checkpoints]
        assert [value_of(checkpoint) for checkpoint in kept[:2]] == ["of rank 0"] * 2
        assert all(os.path.isdir(checkpoint.path) for checkpoint in kept) and len(kept) == 4
    """,
    )
    assert output.count("ranks 0 and 1 both reported `value.pkl`") == 1, output


def test_a_worker_knows_the_machine_and_runs_the_sitecustomize(scripts: Scripts) -> None:
    own = scripts.directory / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    output = run(
        scripts,
        """
    def loop():
        assert ray.is_initialized() and customized and ray.get_gpu_ids() == []
        train.collective.barrier()
        return ray.available_resources(), ray.cluster_resources(), [node["Alive"] for node in ray.nodes()]

    if __name__ == "__main__":
        assert customized
        free, all_of_them, alive = fit(loop).return_value
        print(f"cpus={free['CPU']} of {all_of_them['CPU']}")
        assert alive == [True] and ray.get_gpu_ids() == []
    """,
        PYTHONPATH=str(own),
    )
    assert values(output)["cpus"] == "2.0 of 4.0"


def test_what_today_s_ray_gave_up_is_warned_of_or_raised(scripts: Scripts) -> None:
    script = """
    import warnings

    USES = [
        lambda: DataParallelTrainer(print, run_config=RunConfig(verbose=0)),
        lambda: DataParallelTrainer(print, scaling_config=ScalingConfig(trainer_resources={"CPU": 1})),
        lambda: DataParallelTrainer(print, run_config=RunConfig(failure_config=train.FailureConfig(fail_fast=True))),
        lambda: DataParallelTrainer(print, resume_from_checkpoint=Checkpoint("/nowhere")),
        lambda: DataParallelTrainer.can_restore("/nowhere"),
    ]
    if __name__ == "__main__":
        found = []
        for use in USES:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                try:
                    use()
                except DeprecationWarning:
                    found.append("raised")
                    continue
            assert all(one.filename == __file__ for one in told), told
            found.extend(issubclass(one.category, DeprecationWarning) and "warned" for one in told)
        print("found=" + ",".join(found))
    """
    assert values(run(scripts, script))["found"] == ",".join(["warned"] * 5)
    assert values(run(scripts, script, RAY_TRAIN_V2_ENABLED="1"))["found"] == ",".join(["raised"] * 5)


def test_resources_are_counted_as_ray_counts_them(scripts: Scripts) -> None:
    run(
        scripts,
        """
    import numpy

    if __name__ == "__main__":
        assert ScalingConfig(use_gpu=1).total_resources == {"GPU": 1}
        asked = ScalingConfig(num_workers=numpy.int64(2), use_gpu=numpy.bool_(True), resources_per_worker={"CPU": 1})
        assert asked.total_resources == {"CPU": 2, "GPU": 2} and asked.num_cpus_per_worker == 1
        typed = ScalingConfig(num_workers=2, use_gpu=True, accelerator_type="A100")
        assert typed.total_resources == {"GPU": 2, "accelerator_type:A100": 0.002}
        assert ScalingConfig(use_gpu=0, use_tpu=0).total_resources == {"CPU": 1}
    """,
    )


def test_callbacks_of_a_search_and_of_the_environment_are_told_of_a_run(scripts: Scripts) -> None:
    (scripts.directory / "of_the_environment.py").write_text(
        "from ray.train import UserCallback\n"
        "class Counted(UserCallback):\n"
        "    def after_report(self, run_context, metrics, checkpoint):\n"
        "        print(f'counted={len(metrics)}')\n"
    )
    output = run(
        scripts,
        """
    from ray.tune import Callback

    class Told(Callback):
        def __init__(self):
            self.told = []

        def on_trial_start(self, iteration, trials, trial, **info):
            self.told.append("start")

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.told.append((result["loss"], result["training_iteration"]))

        def on_trial_complete(self, iteration, trials, trial, **info):
            self.told.append(trial.status)

    def loop():
        for loss in (5, 4):
            train.report({"loss": loss})

    if __name__ == "__main__":
        told = Told()
        run_config = RunConfig(storage_path=os.path.abspath("runs"), callbacks=[told])
        DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()
        assert told.told == ["start", (5, 1), (4, 2), "TERMINATED"], told.told
    """,
        RAY_TRAIN_CALLBACKS="of_the_environment.Counted",
        PYTHONPATH=str(scripts.directory),
    )
    assert output.count("counted=2") == 2


def test_hooks_of_a_backend_and_what_configs_take_or_refuse_when_they_are_made(scripts: Scripts) -> None:
    run(
        scripts,
        """
    import pyarrow.fs
    from ray.train import BackendConfig
    from ray.train.backend import Backend

    told = []

    class Own(Backend):
        def on_start(self, worker_group, backend_config):
            told.append(("start", len(worker_group)))

        def on_training_start(self, worker_group, backend_config):
            told.append(("training", type(backend_config).__name__))

        def on_shutdown(self, worker_group, backend_config):
            told.append("over")

    class OwnConfig(BackendConfig):
        @property
        def backend_cls(self):
            return Own

    if __name__ == "__main__":
        fit(int, backend_config=OwnConfig())
        assert told == [("start", 2), ("training", "OwnConfig"), "over"], told
        elsewhere = pyarrow.fs.SubTreeFileSystem("/tmp", pyarrow.fs.LocalFileSystem())
        repr(RunConfig(storage_filesystem=elsewhere))
        for made in (
            lambda: DataParallelTrainer(int, run_config=RunConfig(storage_filesystem=elsewhere)).fit(),
            lambda: RunConfig(callbacks=[1]),
            lambda: ScalingConfig(use_gpu=True, use_tpu=True),
            lambda: ScalingConfig(num_workers=2, label_selector=[{}]),
        ):
            try:
                made()
            except ValueError:
                continue
            raise AssertionError("taken")
    """,
    )


def test_the_trainer_of_ray_1_with_its_callbacks_and_checkpoints(scripts: Scripts) -> None:
    scripts.run(
        """
        import json, os, pickle
        from pathlib import Path
        import ray
        from ray import train
        from ray.train import CheckpointStrategy, Trainer
        from ray.train.callbacks import JsonLoggerCallback, PrintCallback, TrainingCallback

        class Told(TrainingCallback):
            def __init__(self):
                self.told = []

            def start_training(self, logdir, config, **info):
                self.told.append((Path(logdir).name, config))

            def handle_result(self, results, **info):
                self.told.append([(one["loss"], one["_training_iteration"]) for one in results])

            def finish_training(self, error=False, **info):
                self.told.append(error)

        def train_func(config):
            begin = (train.load_checkpoint() or {}).get("step", -1) + 1
            for step in range(begin, config["steps"]):
                loss = abs(step - 1)
                train.save_checkpoint(step=step, loss=loss)
                train.report(loss=loss)
            return train.world_rank(), begin

        if __name__ == "__main__":
            logdir = Path("logs").resolve()
            trainer = Trainer("torch", 2, logdir=str(logdir), max_retries=0)
            trainer.start()
            told, written = Told(), JsonLoggerCallback(workers_to_log=None)
            best = CheckpointStrategy(num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min")
            found = trainer.run(
                train_func, {"steps": 3}, callbacks=[told, written, PrintCallback()], checkpoint_strategy=best
            )
            assert found == [(0, 0), (1, 0)], found
            per_rank = lambda loss, number: [(loss, number)] * 2
            reports = [per_rank(1, 1), per_rank(0, 2), per_rank(1, 3)]
            assert told.told == [("run_001", {"steps": 3}), *reports, False], told.told
            rows = json.loads((trainer.latest_run_dir / "results.json").read_text())
            assert [[one["loss"] for one in row] for row in rows] == [[1, 1], [0, 0], [1, 1]], rows
            assert trainer.latest_run_dir == logdir / "run_001" == written.log_path.parent
            assert trainer.latest_checkpoint == {"step": 2, "loss": 1}
            assert pickle.loads(trainer.best_checkpoint_path.read_bytes()) == {"step": 1, "loss": 0}
            found = trainer.run(train_func, {"steps": 3}, checkpoint=trainer.best_checkpoint_path)
            assert found == [(0, 2), (1, 2)] and trainer.latest_run_dir == logdir / "run_002", found
            try:
                trainer.to_worker_group(dict)
            except NotImplementedError as error:
                assert "DataParallelTrainer" in str(error)
            trainer.shutdown()
        """,
        before=AS_RAY,
    )


# The scheme of the endpoint is written as MinIO's users write it, and the credentials are the script's own.
IN_BUCKET = """
    def loop(config):
        begin = train.get_checkpoint()
        step = 0 if begin is None else value_of(begin) + 1
        rank = train.get_context().get_world_rank()
        train.report({"step": step}, checkpoint=saved(step) if rank == 0 else None)
        if rank == 0:
            assert value_of(train.get_checkpoint()) == step
        storage = train.get_context().get_storage()
        place = storage.build_checkpoint_path_from_name(f"own_{step}")
        if rank == 0:
            with storage.storage_filesystem.open_output_stream(place + "/value.pkl") as file:
                file.write(pickle.dumps(step))
        own = Checkpoint(place, filesystem=storage.storage_filesystem) if rank == 0 else None
        train.report({"step": step}, checkpoint=own, checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD)

    if __name__ == "__main__":
        os.environ.update(AWS_ACCESS_KEY_ID="KEY", AWS_SECRET_ACCESS_KEY="SECRET")
        storage = "s3://bucket/runs?region=us-east-1&endpoint_override=http://127.0.0.1:PORT"
        for step in range(2):
            result = fit(loop, name="kept", storage=storage)
            assert result.metrics == {"step": step}, result
            assert value_of(result.checkpoint) == step
            again = Checkpoint(result.checkpoint.path, filesystem=result.checkpoint.filesystem)
            assert value_of(again) == step
            for path, filesystem in ((result.path, result.filesystem), (result.path, None)):
                assert len(Result.from_path(path, storage_filesystem=filesystem).best_checkpoints) == 2 * (step + 1)
"""


def test_a_uri_with_an_endpoint_and_credentials_of_the_script(scripts: Scripts, s3: S3Server) -> None:
    body = (
        IN_BUCKET.replace("PORT", str(s3.port)).replace('KEY"', f'{ACCESS_KEY}"').replace('SECRET"', f'{SECRET_KEY}"')
    )
    run(scripts, body)
    assert json.loads((s3.bucket / "runs/kept/run.json").read_bytes())["status"] == "finished"


def test_a_public_bucket_is_asked_without_credentials(scripts: Scripts, s3: S3Server) -> None:
    """The server refuses requests that are not signed: that it was asked at all shows that none were missed."""
    output = scripts.run(
        """
        from ray.train import Checkpoint

        try:
            Checkpoint("s3://anonymous@bucket/x?endpoint_override=http://127.0.0.1:PORT").to_directory()
        except Exception as error:
            print(f"refused={'403' in str(error) or 'denied' in str(error).lower()} {error}")
        """.replace("PORT", str(s3.port)),
        before=AS_RAY,
    )
    assert values(output)["refused"].startswith("True"), output
