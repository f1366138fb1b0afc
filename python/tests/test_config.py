"""The configuration: every field with its default, what cannot be, what is not built yet, dicts in the place of classes.

What is not built yet must be refused before anything is made: the tests look at the storage afterwards.
"""

import dataclasses
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import carril
from carril import data, train
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError
from carril.train import (
    BackendConfig,
    CheckpointConfig,
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
    UserCallback,
    ValidationConfig,
    ValidationTaskConfig,
)
from carril.train.torch import TorchConfig, TorchTrainer


def nothing() -> None:
    pass


DEFAULTS: dict[type, dict[str, Any]] = {
    ScalingConfig: {
        "num_workers": 1,
        "use_gpu": False,
        "resources_per_worker": None,
        "placement_strategy": "PACK",
        "accelerator_type": None,
        "use_tpu": False,
        "topology": None,
        "label_selector": None,
        "elastic_resize_monitor_interval_s": 60.0,
        "trainer_resources": None,
    },
    FailureConfig: {
        "max_failures": 0,
        "controller_failure_limit": -1,
        "max_preemption_failures": -1,
        "fail_fast": False,
        "max_infrastructure_failures": None,
        "relax_collectives_on_preemption": False,
        "preemption_grace_s": 30.0,
    },
    CheckpointConfig: {
        "num_to_keep": None,
        "checkpoint_score_attribute": None,
        "checkpoint_score_order": "max",
        "checkpoint_frequency": 0,
        "checkpoint_at_end": None,
    },
    RunConfig: {
        "name": None,
        "storage_path": None,
        "storage_filesystem": None,
        "failure_config": FailureConfig(),
        "checkpoint_config": CheckpointConfig(),
        "callbacks": [],
        "worker_runtime_env": {},
        "logging_config": None,
        "metrics_reduce": {},
        "verbose": 1,
        "sync_config": None,
        "stop": None,
        "progress_reporter": None,
        "log_to_file": None,
        "local_dir": None,
        "hang_timeout": None,
        "resume": None,
    },
    LoggingConfig: {"log_level": "INFO"},
    SyncConfig: {
        "sync_period": 300,
        "sync_timeout": 1800,
        "sync_artifacts": False,
        "sync_artifacts_on_checkpoint": True,
    },
    DataConfig: {
        "datasets_to_split": "all",
        "execution_options": None,
        "enable_shard_locality": True,
        "uneven": "drop",
    },
    ValidationTaskConfig: {"fn_kwargs": {}, "timeout_s": None},
    ValidationConfig: {"fn": None, "task_config": None, "ray_remote_kwargs": None},
    BackendConfig: {},
    TorchConfig: {"backend": None, "init_method": "env", "timeout_s": 1800, "cpu_allreduce": "gloo"},
}


@pytest.mark.parametrize("cls", DEFAULTS, ids=lambda cls: cls.__name__)
def test_every_field_has_its_default_and_the_configuration_pickles(cls: Any) -> None:
    config = cls()
    assert {field.name: getattr(config, field.name) for field in dataclasses.fields(config)} == DEFAULTS[cls]
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ScalingConfig(num_workers=-1), "`ScalingConfig.num_workers` is -1: it must be a number of workers"),
        (lambda: ScalingConfig(num_workers="2"), "`ScalingConfig.num_workers` is '2': it must be a number of workers"),  # type: ignore[arg-type]
        (lambda: ScalingConfig(num_workers=2.0), "`ScalingConfig.num_workers` is 2.0"),  # type: ignore[arg-type]
        (lambda: ScalingConfig(num_workers=True), "`ScalingConfig.num_workers` is True"),
        (lambda: ScalingConfig(num_workers=(3, 2)), "is (3, 2): least must be 1 or more and not above most"),
        (lambda: ScalingConfig(num_workers=(1, 2, 3)), "is (1, 2, 3): an elastic size is (least, most)"),  # type: ignore[arg-type]
        (lambda: ScalingConfig(use_gpu=2), "`ScalingConfig.use_gpu` is 2: it must be True or False"),  # type: ignore[arg-type]
        (lambda: ScalingConfig(resources_per_worker={"GPU": 1}), "asks for GPU: 1 and `use_gpu` is False\nhint: set"),
        (
            lambda: ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0}),
            "`use_gpu=True` with `resources_per_worker={'GPU': 0}` contradict each other\nhint: ",
        ),
        (lambda: ScalingConfig(resources_per_worker={"CPU": -1}), "has 'CPU': -1: an amount is a number, 0 or more"),
        (lambda: ScalingConfig(resources_per_worker={"CPU": "1"}), "has 'CPU': '1': an amount"),  # type: ignore[dict-item]
        (lambda: ScalingConfig(resources_per_worker=[1]), "is [1]: it must be a dict of numbers by name"),  # type: ignore[arg-type]
        (lambda: ScalingConfig(placement_strategy="NEAR"), "is 'NEAR': it must be one of ('PACK', "),
        (lambda: FailureConfig(max_failures=-2), "`FailureConfig.max_failures` is -2: it must be a number of failures"),
        (lambda: FailureConfig(max_infrastructure_failures=-2), "`FailureConfig.max_infrastructure_failures` is -2: it"),
        (lambda: FailureConfig(max_infrastructure_failures=1.5), "`FailureConfig.max_infrastructure_failures` is 1.5"),  # type: ignore[arg-type]
        (lambda: FailureConfig(preemption_grace_s=-1), "`FailureConfig.preemption_grace_s` is -1: it must be 0 or more"),
        (lambda: FailureConfig(preemption_grace_s=float("nan")), "`FailureConfig.preemption_grace_s` is nan: it must be"),
        (lambda: FailureConfig(preemption_grace_s="long"), "`FailureConfig.preemption_grace_s` is 'long': it must be"),  # type: ignore[arg-type]
        (lambda: FailureConfig(fail_fast="yes"), "is 'yes': it must be True, False or 'raise'"),
        (lambda: FailureConfig(fail_fast=True, max_failures=1), "`fail_fast` and `max_failures`, which contradict"),
        (lambda: CheckpointConfig(num_to_keep=0), "`CheckpointConfig.num_to_keep` is 0: it must be a number of"),
        (lambda: CheckpointConfig(num_to_keep=True), "`CheckpointConfig.num_to_keep` is True: it must be a number of"),
        (lambda: CheckpointConfig(checkpoint_score_order="up"), "is 'up': it must be 'max' or 'min'"),
        (lambda: CheckpointConfig(checkpoint_score_attribute=""), "is '': it must be the name of a metric"),
        (lambda: RunConfig(resume="yes", name="a"), "`RunConfig.resume` is 'yes': it must be True or False"),
        (lambda: RunConfig(resume=True), "`RunConfig(resume=True)` has no `name`\nhint: give the name"),
        (lambda: CheckpointConfig(checkpoint_score_attribute=3), "is 3: it must be the name of a metric"),  # type: ignore[arg-type]
        (lambda: RunConfig(name=3), "`RunConfig.name` is 3: it must be a text"),  # type: ignore[arg-type]
        (lambda: RunConfig(metrics_reduce={"loss": "median"}), "has 'loss': 'median': it must be one of mean, sum,"),
        (lambda: RunConfig(local_dir="a", storage_path="b"), "has `storage_path` and `local_dir`\nhint: `local_dir` is"),
        (lambda: RunConfig(failure_config=3), "`failure_config` is an int: it must be a `FailureConfig` or a dict"),  # type: ignore[arg-type]
        (lambda: RunConfig(hang_timeout=0), "`RunConfig.hang_timeout` is 0: it must be above 0"),
        (lambda: RunConfig(hang_timeout=float("inf")), "`RunConfig.hang_timeout` is inf: it must be above 0"),
        (lambda: RunConfig(hang_timeout="1m"), "`RunConfig.hang_timeout` is '1m': it must be a number of seconds"),  # type: ignore[arg-type]
        (lambda: LoggingConfig(log_level="loud"), "`LoggingConfig.log_level` is 'LOUD': it must be one of"),
        (lambda: DataConfig(datasets_to_split="some"), "is 'some': it must be 'all' or a list of names"),
        (lambda: ValidationTaskConfig(timeout_s=0), "`ValidationTaskConfig.timeout_s` is 0: it must be above 0"),
        (lambda: TorchConfig(init_method="file"), "`TorchConfig.init_method` is 'file': it must be 'env' or 'tcp'"),
        (lambda: TorchConfig(timeout_s=0), "`TorchConfig.timeout_s` is 0: it must be above 0"),
        (lambda: ScalingConfig(num_worker=2), "`ScalingConfig` has no field `num_worker`\nhint: did you mean `num_workers`?"),  # type: ignore[call-arg]
        (lambda: ScalingConfig(zzz=2), "has no field `zzz`\nhint: the fields are `num_workers`, `use_gpu`, "),  # type: ignore[call-arg]
        (lambda: ScalingConfig(unbuilt={}), "`ScalingConfig` has no field `unbuilt`"),  # type: ignore[call-arg]
        (lambda: DataParallelTrainer(3), "`train_loop_per_worker` is an int: it must be a function"),  # type: ignore[arg-type]
        (lambda: DataParallelTrainer(nothing, train_loop_config=[]), "`train_loop_config` is a list: it must be a dict"),  # type: ignore[arg-type]
        (lambda: DataParallelTrainer(nothing, scaling_config=2), "`scaling_config` is an int: it must be a `ScalingConfig`"),  # type: ignore[arg-type]
        (lambda: DataParallelTrainer(nothing, run_config="r"), "`run_config` is a str: it must be a `RunConfig` or a dict"),  # type: ignore[arg-type]
        (lambda: DataParallelTrainer(nothing, backend_config=2), "`backend_config` is an int: it must be a `BackendConfig`"),  # type: ignore[arg-type]
        (lambda: TorchTrainer(nothing, torch_config=2), "`torch_config` is an int: it must be a `TorchConfig`"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_made_and_the_field_is_named(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError) and caught.value.code == "invalid-config"
    headline = str(caught.value).split("\n")[0]
    assert not headline.endswith(".") and headline.startswith("`")


def test_a_wrong_type_is_a_type_error_too() -> None:
    with pytest.raises(TypeError):
        ScalingConfig(num_workers="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RunConfig(nam="x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("config", "resources", "total"),
    [
        (ScalingConfig(), {"CPU": 1.0}, {"CPU": 1.0}),
        (ScalingConfig(num_workers=3), {"CPU": 1.0}, {"CPU": 3.0}),
        (ScalingConfig(num_workers=2, use_gpu=True), {"CPU": 1.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 2.0}),
        (ScalingConfig(use_gpu=True, resources_per_worker={"CPU": 4}), {"CPU": 4.0, "GPU": 1.0}, None),
        (ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0.5}), {"CPU": 1.0, "GPU": 0.5}, None),
        (ScalingConfig(resources_per_worker={"CPU": 0, "disk": 2}), {"disk": 2.0}, {"disk": 2.0}),
    ],
)
def test_what_a_worker_reserves(config: ScalingConfig, resources: dict[str, float], total: dict[str, float]) -> None:
    assert config.worker_resources == resources
    assert config.total_resources == (total or resources)
    assert config.num_cpus_per_worker == resources.get("CPU", 0.0)
    assert config.num_gpus_per_worker == resources.get("GPU", 0.0) and config.num_tpus_per_worker == 0.0
    assert config.additional_resources_per_worker == {k: v for k, v in resources.items() if k not in ("CPU", "GPU")}


def test_the_sizes_of_a_group() -> None:
    fixed, elastic = ScalingConfig(num_workers=3), ScalingConfig(num_workers=(2, 5))
    assert (fixed.min_workers, fixed.max_workers, fixed.elasticity_enabled) == (3, 3, False)
    assert (elastic.min_workers, elastic.max_workers, elastic.elasticity_enabled) == (2, 5, True)
    assert elastic.total_resources == {"CPU": 5.0}


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    config = ScalingConfig(np.int64(2), resources_per_worker={"CPU": np.int32(3)})  # type: ignore[arg-type,dict-item]
    assert type(config.num_workers) is int and config.total_resources == {"CPU": 6.0}
    assert type(FailureConfig(max_failures=np.uint8(1)).max_failures) is int  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="num_workers` is -1"):
        ScalingConfig(np.int64(-1))  # type: ignore[arg-type]


def test_configurations_may_be_dicts() -> None:
    trainer = TorchTrainer(
        nothing,
        scaling_config={"num_workers": 2},
        run_config={"name": "n", "checkpoint_config": {"checkpoint_score_attribute": "loss"}, "failure_config": {}},
        torch_config={"backend": "gloo"},
        dataset_config={"datasets_to_split": ["a"]},
    )
    assert trainer.scaling_config == ScalingConfig(num_workers=2)
    assert trainer.run_config.checkpoint_config == CheckpointConfig(checkpoint_score_attribute="loss")
    assert trainer.run_config.failure_config == FailureConfig()
    assert trainer.backend_config == TorchConfig(backend="gloo")
    assert trainer.data_config == DataConfig(datasets_to_split=["a"])
    with pytest.raises(ConfigTypeError, match=r"`ScalingConfig` has no field `workers`\nhint: "):
        DataParallelTrainer(nothing, scaling_config={"workers": 2})


UNBUILT: list[tuple[dict[str, Any], str]] = [
    (
        {"scaling_config": ScalingConfig(num_workers=(1, 2))},
        "`ScalingConfig(num_workers=(1, 2))`: elastic runs are not",
    ),
    ({"scaling_config": ScalingConfig(accelerator_type="A100")}, "types of accelerators are not built yet"),
    ({"scaling_config": ScalingConfig(use_tpu=True)}, "`ScalingConfig(use_tpu=True)`: TPUs are not built yet"),
    ({"scaling_config": ScalingConfig(topology="2x2")}, "TPUs are not built yet"),
    ({"scaling_config": ScalingConfig(label_selector={"a": "b"})}, "labels of nodes are not built yet"),
    ({"scaling_config": ScalingConfig(elastic_resize_monitor_interval_s=5)}, "elastic runs are not built yet"),
    ({"scaling_config": ScalingConfig(2, placement_strategy="STRICT_SPREAD")}, "`STRICT_SPREAD` needs several nodes"),
    (
        {"failure_config": FailureConfig(controller_failure_limit=1)},
        "`FailureConfig(controller_failure_limit=1)`: a limit of its own for the head is not built yet",
    ),
    ({"failure_config": FailureConfig(max_preemption_failures=1)}, "a limit for preemptions is not built yet"),
    (
        {"failure_config": FailureConfig(relax_collectives_on_preemption=True)},
        "reports without the preempted ranks are not built yet",
    ),
    ({"checkpoint_config": CheckpointConfig(checkpoint_frequency=2)}, "are not built yet\nhint: a training function"),
    ({"checkpoint_config": CheckpointConfig(checkpoint_at_end=True)}, "are not built yet\nhint: a training function"),
    ({"stop": {"loss": 0.1}}, "stopping by a condition is not built yet"),
    ({"progress_reporter": object()}, "progress reporters are not built yet"),
    ({"log_to_file": True}, "`RunConfig(log_to_file=True)` is not built yet\nhint: the output of every rank is kept"),
    ({"worker_runtime_env": {"pip": ["x"]}}, "`worker_runtime_env['pip']` is not built yet\nhint: "),
]


@pytest.mark.parametrize(("asked", "text"), UNBUILT, ids=[str(index) for index in range(len(UNBUILT))])
def test_what_is_not_built_yet_is_refused_before_anything_is_made(
    storage: Path, asked: dict[str, Any], text: str
) -> None:
    asked = dict(asked)
    scaling = asked.pop("scaling_config", ScalingConfig(num_workers=1))
    run = RunConfig(**{"storage_path": storage, "name": "never"} | asked)
    trainer = DataParallelTrainer(nothing, scaling_config=scaling, run_config=run)
    with pytest.raises(NotAvailableError) as caught:
        trainer.fit()
    assert text in str(caught.value)
    assert isinstance(caught.value, NotImplementedError) and caught.value.code == "not-available"
    assert list(storage.iterdir()) == [] and not carril.is_initialized()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metadata": {"a": 1}}, "`metadata=…`: metadata of a run is not built yet"),
    ],
)
def test_arguments_of_a_trainer_that_are_not_built_yet_are_refused(arguments: dict[str, Any], text: str) -> None:
    for cls in (DataParallelTrainer, TorchTrainer):
        with pytest.raises(NotAvailableError, match=re.escape(text)):
            cls(nothing, **arguments)
    assert DataParallelTrainer(nothing, datasets={}).datasets == {}


def test_names_that_come_later_exist_and_say_so() -> None:
    for call, name in (
        (lambda: train.xgboost, "carril.train.xgboost"),
        (lambda: train.lightning, "carril.train.lightning"),
        (lambda: train.NCCLHangError, "carril.train.NCCLHangError"),
        (lambda: data.read_sql, "carril.data.read_sql"),
        (lambda: data.range(3).groupby, "Dataset.groupby"),
    ):
        with pytest.raises(NotAvailableError, match=f"`{re.escape(name)}` is not built yet"):
            call()
    for module in (train, data):
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = module.nonsense  # type: ignore[attr-defined]
    assert not hasattr(data.range(3), "groupby"), "it can be asked for"


def test_every_public_name_is_there() -> None:
    for module in (carril, train, train.torch, train.collective):
        for name in module.__all__:
            assert getattr(module, name) is not None, name
            assert name in dir(module)


def test_a_function_with_two_required_parameters_is_refused_at_fit(storage: Path) -> None:
    def function(config: dict[str, Any], other: int) -> None: ...

    trainer = DataParallelTrainer(function, run_config=RunConfig(storage_path=storage))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"requires 2 parameters \(config, other\): it may require none, or one"):
        trainer.fit()
    assert list(storage.iterdir()) == []


def test_a_callback_must_be_an_instance_of_its_class(storage: Path) -> None:
    for callback, kind in ((object(), "an object"), (UserCallback, "a type")):
        trainer = DataParallelTrainer(nothing, run_config=RunConfig(storage_path=storage, callbacks=[callback]))
        with pytest.raises(ValueError, match=f"`RunConfig.callbacks` holds {kind}: it must be a `UserCallback`"):
            trainer.fit()
    assert list(storage.iterdir()) == []


def test_a_trainer_keeps_what_it_was_given_and_prints_itself() -> None:
    trainer = DataParallelTrainer(nothing, train_loop_config={"a": 1}, scaling_config=ScalingConfig(num_workers=0))
    assert trainer.train_loop_per_worker is nothing and trainer.train_loop_config == {"a": 1}
    assert trainer.running_in_local_mode and trainer.run_config == RunConfig() and trainer.datasets == {}
    assert repr(trainer).startswith("DataParallelTrainer(nothing, scaling_config=ScalingConfig(num_workers=0")


@pytest.mark.parametrize("name", ["cpu", "Gpu"])
def test_a_resource_in_the_wrong_case_is_not_taken_for_another(name: str) -> None:
    with pytest.raises(ConfigError, match=f"has '{name}'\nhint: did you mean '{name.upper()}'"):
        ScalingConfig(resources_per_worker={name: 1})


@pytest.mark.parametrize("given", [0, 1, False, True])
def test_zero_and_one_are_as_good_as_false_and_true(given: int) -> None:
    """A widely copied script has `use_gpu=int(not smoke_test)`."""
    assert ScalingConfig(use_gpu=given).use_gpu is bool(given)  # type: ignore[arg-type]
    assert ("GPU" in ScalingConfig(use_gpu=given).worker_resources) is bool(given)  # type: ignore[arg-type]
