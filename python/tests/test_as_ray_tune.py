"""`ray.tune` under `carril as-ray`: the names of both generations, and what they do inside a trial.

Each test runs a script as a user does. Longer ones, in the style of well-known scripts, are among the examples.
"""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from driver_scripts import Scripts, scripts_fixture, values, wait_until  # noqa: F401

from carril._internal.command import find_command

AS_RAY = (find_command(), "as-ray", "--")


def test_the_names_are_carrils_own_under_every_path_that_scripts_use(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import carril.tune as ours
        from ray import tune
        from ray.tune import Callback, CLIReporter, ExperimentAnalysis, Trainable, TuneConfig, TuneError, Tuner
        from ray.tune.analysis import ExperimentAnalysis as Older
        from ray.tune.analysis.experiment_analysis import ExperimentAnalysis as Oldest
        from ray.tune.callback import Callback as OfModule
        from ray.tune.error import TuneError as OfError
        from ray.tune.execution.placement_groups import PlacementGroupFactory
        from ray.tune.experiment import Trial
        from ray.tune.experiment.trial import Trial as OfTrial
        from ray.tune.integration.ray_train import TuneReportCallback
        from ray.tune.logger import JsonLoggerCallback, LoggerCallback
        from ray.tune.progress_reporter import CLIReporter as OfReporters
        from ray.tune.registry import register_env, register_trainable
        from ray.tune.result import TRAINING_ITERATION
        from ray.tune.result_grid import ResultGrid
        from ray.tune.sample import Float
        from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, create_scheduler
        from ray.tune.schedulers.async_hyperband import AsyncHyperBandScheduler
        from ray.tune.schedulers.pb2 import PB2
        from ray.tune.schedulers.pbt import PopulationBasedTrainingReplay
        from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
        from ray.tune.search.basic_variant import BasicVariantGenerator as OfVariants
        from ray.tune.search.hyperopt import HyperOptSearch
        from ray.tune.search.optuna import OptunaSearch
        from ray.tune.search.sample import Domain
        from ray.tune.stopper import MaximumIterationStopper, Stopper
        from ray.tune.suggest import ConcurrencyLimiter as OlderLimiter
        from ray.tune.suggest.hyperopt import HyperOptSearch as OlderHyperOpt
        from ray.tune.suggest.optuna import OptunaSearch as OlderOptuna
        from ray.tune.suggest.suggestion import ConcurrencyLimiter as OldestLimiter
        from ray.tune.syncer import SyncConfig
        from ray.tune.trainable import Trainable as OfTrainables
        from ray.tune.trainable.util import with_parameters
        from ray.tune.trial import Trial as OlderTrial
        from ray.tune.tune import run
        from ray.tune.tune_config import TuneConfig as OfConfigs
        from ray.tune.tuner import Tuner as OfTuners

        same = [
            Tuner is ours.Tuner is OfTuners is tune.Tuner,
            TuneConfig is ours.TuneConfig is OfConfigs,
            Trainable is ours.Trainable is OfTrainables,
            ExperimentAnalysis is ours.ExperimentAnalysis is Older is Oldest,
            Callback is OfModule is ours.Callback,
            TuneError is OfError,
            PlacementGroupFactory is ours.PlacementGroupFactory,
            SyncConfig is tune.SyncConfig,
            CLIReporter is OfReporters,
            Trial is OfTrial is OlderTrial,
            ASHAScheduler is AsyncHyperBandScheduler is ours.schedulers.ASHAScheduler,
            BasicVariantGenerator is OfVariants is tune.search.BasicVariantGenerator,
            OptunaSearch is OlderOptuna is tune.search.optuna.OptunaSearch,
            HyperOptSearch is OlderHyperOpt,
            ConcurrencyLimiter is OlderLimiter is OldestLimiter,
            ResultGrid is ours.ResultGrid,
            with_parameters is ours.with_parameters,
            run is ours.run,
            issubclass(Float, Domain),
            isinstance(tune.uniform(0, 1), Float),
            issubclass(MaximumIterationStopper, Stopper) and Stopper is tune.Stopper,
            issubclass(JsonLoggerCallback, LoggerCallback),
            TRAINING_ITERATION == "training_iteration",
        ]
        print(f"different={[number for number, one in enumerate(same) if not one]}")
        """,
        before=AS_RAY,
    )
    assert values(output)["different"] == "[]"


def test_all_that_a_module_promises_is_there(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import importlib
        from carril.as_ray.names import MODULES
        from ray import tune

        print(f"main={[name for name in tune.__all__ if not hasattr(tune, name)]}")
        # These need the libraries that they stand for.
        foreign = ("keras", "lightgbm", "pytorch_lightning", "xgboost")
        empty, seen = [], 0
        for path in MODULES:
            if path.startswith("ray.tune.integration.") and path.rpartition(".")[2] in foreign:
                continue
            module = importlib.import_module(path)
            seen += 1
            empty += [f"{path}.{name}" for name in module.__all__ if not hasattr(module, name)]
        print(f"empty={empty}")
        print(f"seen={seen}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert (found["main"], found["empty"]) == ("[]", "[]")
    assert int(found["seen"]) > 100


@pytest.mark.parametrize(
    "line",
    [
        "from ray.tune.utils import UtilMonitor",
        "from ray.tune.logger import UnifiedLogger",
        "import ray.tune.utils.log",
        "from ray.tune.syncer import Syncer",
        "from ray.tune.search.flaml import CFO",
        "from ray.tune.suggest.skopt import SkOptSearch",
        "from ray.tune.integration.mlflow import mlflow_mixin",
        "from ray.tune.logger.aim import AimLoggerCallback",
    ],
)
def test_what_is_not_there_says_so_by_name(scripts: Scripts, line: str) -> None:
    script = scripts.start(line, before=AS_RAY)
    assert script.finish() == 1
    assert re.search(
        r"MissingNameError: `ray\.tune\.[\w.]+` is not (?:available yet|part of carril).*\nhint: ", script.output
    ), script.output


def test_an_attribute_that_is_not_there_can_be_asked_for(scripts: Scripts) -> None:
    output = scripts.run(
        """
        from ray import tune
        import ray.tune.logger
        print(f"docker={hasattr(tune, 'docker')}")
        print(f"logger={getattr(ray.tune.logger, 'UnifiedLogger', None)}")
        try:
            tune.docker
        except AttributeError as error:
            print(f"text={error}".splitlines()[0])
        """,
        before=AS_RAY,
    )
    found = {"docker": "False", "logger": "None", "text": "`ray.tune.docker` is not part of carril"}
    assert values(output) == found


def test_a_library_that_is_missing_is_named_with_the_line_that_installs_it(scripts: Scripts) -> None:
    """A directory in front of the path hides the libraries, installed or not."""
    for name in ("hyperopt", "xgboost"):
        scripts.write(f"raise ModuleNotFoundError('hidden', name={name!r})", f"{name}.py")
    output = scripts.run(
        """
        from ray.tune.search.hyperopt import HyperOptSearch
        try:
            HyperOptSearch()
        except Exception as error:
            print(f"searcher={error}".replace(chr(10), " "))
        try:
            from ray.tune.integration.xgboost import TuneReportCallback
        except ImportError as error:
            print(f"callback={error}".replace(chr(10), " "))
        """,
        before=AS_RAY,
    )
    assert "pip install hyperopt" in values(output)["searcher"]
    assert "pip install xgboost" in values(output)["callback"]


def test_a_function_of_the_older_generation_reports_and_goes_on_by_its_session(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        from ray import air, tune
        from ray.air import Checkpoint, session

        def objective(config):
            begin = 0
            if session.get_checkpoint():
                with session.get_checkpoint().as_directory() as directory:
                    begin = int(open(os.path.join(directory, "step")).read()) + 1
            for step in range(begin, 4):
                os.makedirs("model", exist_ok=True)
                with open("model/step", "w") as file:
                    file.write(str(step))
                session.report({"score": config["x"] * step, "begin": begin}, checkpoint=Checkpoint.from_directory("model"))
                if step == 1 and begin == 0:
                    raise RuntimeError("once")

        tuner = tune.Tuner(
            tune.with_resources(objective, {"cpu": 1}),
            param_space={"x": tune.grid_search([1, 2, 3])},
            run_config=air.RunConfig(name="older", failure_config=air.FailureConfig(max_failures=1)),
        )
        results = tuner.fit()
        best = results.get_best_result("score", "max")
        print(f"best={best.config['x']}, {best.metrics['score']}, {best.metrics['begin']}")
        print(f"iteration={best.metrics['training_iteration']}")
        directory = best.checkpoint.to_directory("copy")
        print(f"step={open(os.path.join(directory, 'step')).read()}")
        print(f"path={best.path}")
        print(f"errors={results.num_errors}, {len(results)}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["best"] == "3, 9, 2"
    assert found["step"] == "3"
    assert found["errors"] == "0, 3"
    assert Path(found["path"]).parent == scripts.directory / "ray_results" / "older"
    # Its own working directory was the trial's, so that nothing lies where the script was started.
    assert not (scripts.directory / "model").exists()


def test_the_names_of_ray_train_act_on_the_trial(scripts: Scripts) -> None:
    output = scripts.run(
        """
        from ray import train, tune

        def objective(config):
            assert train.get_checkpoint() is None
            for step in range(100):
                train.report({"loss": config["x"] - step})

        results = tune.Tuner(
            objective,
            param_space={"x": tune.choice([5])},
            run_config=train.RunConfig(stop={"training_iteration": 3}),
        ).fit()
        print(f"loss={results[0].metrics['loss']}")
        print(f"rows={results[0].metrics['training_iteration']}")
        """,
        before=AS_RAY,
    )
    # The stop landed on the third report.
    assert (values(output)["loss"], values(output)["rows"]) == ("3", "3")


def test_a_script_of_the_first_generation_runs(scripts: Scripts) -> None:
    """`tune.run`, metrics by keyword, `tune.checkpoint_dir`, and an analysis."""
    output = scripts.run(
        """
        import os
        from ray import tune
        from ray.tune import CLIReporter
        from ray.tune.schedulers import ASHAScheduler

        def train(config, checkpoint_dir=None, data=None):
            for step in range(4):
                with tune.checkpoint_dir(step) as directory:
                    with open(os.path.join(directory, "weights"), "w") as file:
                        file.write(f"{config['lr']} {step} {data}")
                tune.report(loss=config["lr"] * (4 - step), accuracy=step / 4)

        analysis = tune.run(
            tune.with_parameters(train, data="pictures"),
            resources_per_trial={"cpu": 1},
            config={"lr": tune.grid_search([0.5, 0.25]), "width": tune.sample_from(lambda spec: int(spec.config.lr * 8))},
            num_samples=1,
            scheduler=ASHAScheduler(metric="loss", mode="min", max_t=4, grace_period=4),
            progress_reporter=CLIReporter(metric_columns=["loss", "accuracy"]),
            local_dir="results",
            name="first",
            keep_checkpoints_num=2,
        )
        best = analysis.get_best_trial("loss", "min", "last")
        print(f"config={sorted(best.config.items())}")
        print(f"result={best.last_result['loss']}, {best.last_result['accuracy']}")
        checkpoint = analysis.get_best_checkpoint(best, "loss", "min")
        with checkpoint.as_directory() as directory:
            print(f"weights={open(os.path.join(directory, 'weights')).read()}")
        print(f"logdir={analysis.get_best_logdir('loss', 'min')}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["config"] == "[('lr', 0.25), ('width', 2)]"
    assert found["result"] == "0.25, 0.75"
    assert found["weights"] == "0.25 3 pictures"
    assert Path(found["logdir"]).parent == scripts.directory / "results" / "first"
    kept = sorted(path.name for path in Path(found["logdir"]).glob("checkpoint_*"))
    assert kept == ["checkpoint_000002", "checkpoint_000003"]


def test_a_trial_knows_who_it_is_by_the_names_of_both_generations(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        from ray import tune

        def objective(config):
            context = tune.get_context()
            return {
                "ids": sorted({tune.get_trial_id(), context.get_trial_id()}),
                "names": sorted({tune.get_trial_name(), context.get_trial_name()}),
                "directories": sorted({tune.get_trial_dir(), context.get_trial_dir()}),
                "experiment": context.get_experiment_name(),
                "cpus": tune.get_trial_resources().required_resources["CPU"],
                "enabled": tune.is_session_enabled(),
                "in": os.getcwd(),
                "from": os.environ["TUNE_ORIG_WORKING_DIR"],
            }

        results = tune.Tuner(tune.with_resources(objective, {"CPU": 0.5}), run_config=tune.RunConfig(name="who")).fit()
        import json
        print("told=" + json.dumps({**results[0].metrics, "config": None}, default=str))
        print(f"path={results[0].path}")
        print(f"outside={tune.is_session_enabled()} {tune.get_trial_id()}")
        """,
        before=AS_RAY,
    )
    told, path = json.loads(values(output)["told"]), values(output)["path"]
    assert told["ids"] == [told["trial_id"]]
    assert told["names"] == [f"objective_{told['trial_id']}"]
    assert told["experiment"] == "who"
    assert told["directories"] == [path] == [told["in"]]
    assert told["from"] == str(scripts.directory)
    assert (told["cpus"], told["enabled"]) == (0.5, True)
    assert values(output)["outside"] == "False None"


def test_the_variable_that_keeps_trials_where_the_script_is_counts(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        from ray import tune
        results = tune.Tuner(lambda config: {"where": os.getcwd(), "score": 1}).fit()
        print(f"where={results[0].metrics['where']}")
        """,
        before=AS_RAY,
        RAY_CHDIR_TO_TRIAL_DIR="0",
    )
    assert values(output)["where"] == str(scripts.directory)


def test_outside_of_a_trial_a_report_warns_and_does_nothing(scripts: Scripts) -> None:
    output = scripts.run(
        """
        from ray import tune
        from ray.air import session

        tune.report({"loss": 1})
        tune.report(loss=1)
        session.report({"loss": 1})
        print(f"checkpoint={tune.get_checkpoint()}")
        """,
        before=AS_RAY,
    )
    assert values(output)["checkpoint"] == "None"
    assert output.count("outside of a trial") == 2
    assert "`session.report()` was called outside" in output


# The directories of trials are named alike in every search; all trials wait until `go` is there.
STARTED_AGAIN = """
import os, tempfile, time
from ray import tune
from ray.tune import Checkpoint

GO = os.path.abspath("go")

def train(config):
    with tempfile.TemporaryDirectory() as directory:
        open(os.path.join(directory, "state"), "w").close()
        has_one = tune.get_checkpoint() is not None
        tune.report({"loss": config["x"], "resumed": has_one}, checkpoint=Checkpoint.from_directory(directory))
    while not os.path.exists(GO):
        time.sleep(0.01)

OPTIONS = {
    "name": "demo", "storage_path": os.getcwd(), "metric": "loss", "mode": "min",
    "trial_dirname_creator": lambda trial: f"x{trial.config['x']}",
}
"""


def cut_off_under_as_ray(scripts: Scripts) -> dict[str, bytes]:
    """A search over 1 and 2 whose driver is killed; what its trials have on disk."""
    first = scripts.start(
        STARTED_AGAIN + "tune.run(train, config={'x': tune.grid_search([1, 2])}, **OPTIONS)", before=AS_RAY
    )
    stored = "demo/x?/checkpoint_000000/.manifest.json"
    wait_until(lambda: len(list(scripts.directory.glob(stored))) == 2, "both trials have checkpoints")
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    (scripts.directory / "go").touch()
    results = scripts.directory.glob("demo/x?/result.json")
    return {str(path): path.read_bytes() for path in results}


@pytest.mark.parametrize("way", ["run", "tuner"])
def test_a_search_that_was_cut_off_is_followed_by_a_new_one_with_the_new_grid(scripts: Scripts, way: str) -> None:
    before = cut_off_under_as_ray(scripts)
    start = {
        "run": "found = [(t.config['x'], t.last_result['resumed'], os.path.basename(t.local_path)) for t in "
        "tune.run(train, config={'x': tune.grid_search([2, 3])}, **OPTIONS).trials]",
        "tuner": """
config = tune.TuneConfig(metric="loss", mode="min", trial_dirname_creator=OPTIONS["trial_dirname_creator"])
run_config = tune.RunConfig(name="demo", storage_path=os.getcwd())
grid = tune.Tuner(train, param_space={"x": tune.grid_search([2, 3])}, tune_config=config, run_config=run_config).fit()
found = [(result.config["x"], result.metrics["resumed"], os.path.basename(result.path)) for result in grid]
""",
    }[way]
    output = scripts.run(STARTED_AGAIN + start + "\nprint(f'found={sorted(found)}')", before=AS_RAY)
    assert values(output)["found"] == "[(2, False, 'x2_1'), (3, False, 'x3')]", output
    assert "resuming" not in output
    told = [line for line in output.splitlines() if "did not finish (0 of 2 trials ended)" in line]
    assert len(told) == 1 and "its trials are kept" in told[0] and "Tuner.restore(" in told[0], output
    for path, content in before.items():
        assert Path(path).read_bytes() == content, "the trials of the first one stay as they were"
    kept = [
        sorted(path.name for path in (scripts.directory / "demo").glob(f"{name}-*"))
        for name in ("trials", "experiment")
    ]
    assert [len(names) for names in kept] == [1, 1], kept


@pytest.mark.parametrize("resume", ["True", "'AUTO'"])
def test_rays_resume_resumes_what_was_cut_off(scripts: Scripts, resume: str) -> None:
    cut_off_under_as_ray(scripts)
    output = scripts.run(
        STARTED_AGAIN
        + f"trials = tune.run(train, config={{'x': tune.grid_search([1, 2])}}, resume={resume}, **OPTIONS).trials\n"
        + 'print(f\'found={sorted((t.config["x"], t.last_result["resumed"]) for t in trials)}\')',
        before=AS_RAY,
    )
    assert values(output)["found"] == "[(1, True), (2, True)]", output
    assert "resuming `demo`: 0 of 2 trials done, 2 resume from their checkpoints" in output


def test_schedulers_that_are_derived_from_rays_decide_with_super_and_stop_other_trials(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        import ray
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, HyperBandScheduler, PopulationBasedTraining

        ray.init(num_cpus=2)
        heard, removed = [], []

        class Halving(ASHAScheduler):
            def on_trial_result(self, controller, trial, result):
                decision = super().on_trial_result(controller, trial, result)
                heard.append((result["training_iteration"], result["deep/er"], decision))
                return decision

        class Narrows(HyperBandScheduler):
            def on_trial_result(self, controller, trial, result):
                return super().on_trial_result(controller, trial, result)

        class Population(PopulationBasedTraining):
            def on_trial_result(self, controller, trial, result):
                return super().on_trial_result(controller, trial, result)

        class EndsAll(FIFOScheduler):
            def on_trial_result(self, controller, trial, result):
                if trial.config["x"] > 1 or len(controller.get_trials()) < 3:
                    return self.CONTINUE
                for other in controller.get_live_trials():
                    if other is not trial:
                        controller.stop_trial(other)
                return self.STOP

            def on_trial_remove(self, controller, trial):
                removed.append(trial.trial_id[-1])

        def function(config):
            for _ in range(4):
                tune.report({"loss": config["x"], "deep": {"er": 1}})

        def endless(config):
            while True:
                tune.report({"loss": config["x"]})

        class Counts(tune.Trainable):
            def setup(self, config):
                self.total = 0.0

            def step(self):
                self.total += self.config["x"]
                return {"loss": self.config["x"], "total": self.total}

            def save_checkpoint(self, directory):
                with open(os.path.join(directory, "total"), "w") as file:
                    file.write(str(self.total))

            def load_checkpoint(self, directory):
                with open(os.path.join(directory, "total")) as file:
                    self.total = float(file.read())

        def search(name, trainable, scheduler, space, metric="loss", mode="min", stop=None, most=None):
            grid = tune.Tuner(
                trainable,
                param_space=space,
                tune_config=tune.TuneConfig(metric=metric, mode=mode, scheduler=scheduler, max_concurrent_trials=most),
                run_config=tune.RunConfig(name=name, storage_path=os.getcwd(), verbose=0, stop=stop),
            ).fit()
            assert not grid.num_errors, grid.errors
            return grid

        four = {"x": tune.grid_search([1, 2, 3, 4])}
        halved = search("halved", function, Halving(max_t=4, grace_period=1, reduction_factor=2), four, most=1)
        print(f"halved={[result.metrics['training_iteration'] for result in halved]}")
        print(f"heard={heard[0]} {heard[-1]}")
        narrowed = search("narrowed", Counts, Narrows(max_t=9), four)
        print(f"narrowed={[result.metrics['training_iteration'] for result in narrowed]}")
        ended = search("ended", endless, EndsAll(), {"x": tune.grid_search([1, 2, 3])})
        print(f"ended={len(ended)} {ended.num_terminated}")
        print(f"removed={removed}")
        population = Population(
            time_attr="training_iteration",
            perturbation_interval=2,
            quantile_fraction=0.5,
            hyperparam_mutations={"x": [0.0, 1000.0]},
            resample_probability=0.0,
            synch=True,
        )
        grown = search(
            "grown", Counts, population, {"x": tune.grid_search([0.0, 1000.0])}, "total", "max", {"training_iteration": 12}
        )
        print(f"grown={[result.metrics['total'] >= 1000 for result in grown]}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["halved"] == "[4, 1, 1, 1]"
    assert found["heard"] == "(1, 1, 'CONTINUE') (1, 1, 'STOP')"
    assert found["narrowed"] == "[9, 1, 1, 1]"
    # The third one waited for room.
    assert (found["ended"], found["removed"]) == ("3 3", "['2']")
    # The worse of the two has gone on from the checkpoint of the better.
    assert found["grown"] == "[True, True]"


def test_what_scripts_take_from_trials_searchers_and_callbacks(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        import warnings
        import ray
        from ray import tune
        from ray.tune.result_grid import ResultGrid
        from ray.tune.search import Searcher

        ray.init(num_cpus=2)
        quiet = {"storage_path": os.getcwd(), "verbose": 0}

        def function(config):
            tune.report({"loss": float(config.get("x", "nan")), "deep": {"er": 1}, "timesteps_this_iter": 5})
            tune.report({"loss": float(config.get("x", "nan")), "deep": {"er": 2}, "timesteps_this_iter": 5})

        def fails(config):
            raise ValueError("on purpose")

        class Two(Searcher):
            ends = []

            def suggest(self, trial_id):
                Two.ends += [None]
                return {"x": 1, "fails": len(Two.ends) > 1} if len(Two.ends) < 3 else Searcher.FINISHED

            def on_trial_complete(self, trial_id, result=None, **more):
                Two.ends[int(trial_id[-1])] = (result and (result["deep/er"], result["deep"]["er"]), more)

        def sometimes(config):
            (fails if config["fails"] else function)(config)

        tune.run(sometimes, search_alg=Two(), num_samples=4, raise_on_failed_trial=False, **quiet)
        print(f"searcher={Two.ends[:2]}")

        analysis = tune.run(
            function,
            config={"x": tune.grid_search([2, 1]), "deep": {"y": 3}},
            metric="loss",
            trial_name_creator=lambda trial: f"{trial.trainable_name}_{trial.trial_id}_named",
            **quiet,
        )
        best = analysis.get_best_trial(mode="min")
        print(f"best={best.config['x']} {analysis.default_metric}")
        print(f"named={str(best) == f'{best.trainable_name}_{best.trial_id}_named' == repr(best)} {best.trainable_name}")
        print(f"reserves={best.placement_group_factory.required_resources} {best.has_checkpoint()}")
        print(f"grid={len(ResultGrid(analysis))} {ResultGrid(analysis).get_best_result('loss', 'max').config['x']}")
        fields = ("timesteps_total", "timesteps_since_restore", "episodes_total")
        print(f"counted={[best.last_result[name] for name in fields]}")
        print(f"older={best.last_result['_timestamp'] == best.last_result['timestamp']}")

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nothing = tune.run(function, num_samples=2, **quiet).get_best_trial("loss", "min")
        print(f"nan={nothing} {any('no best trial' in str(one.message) for one in caught)}")

        experiments = {"raises": {"run": fails, "storage_path": os.getcwd()}}
        try:
            tune.run_experiments(experiments, verbose=0)
        except tune.TuneError:
            print("raised=True")
        (trial,) = tune.run_experiments(experiments, verbose=0, raise_on_failed_trial=False)
        print(f"failed={trial.status}")
        for wrong in ({"run": "nobody"}, {"stop": {}}, {"run": function, "bah": 1}):
            try:
                tune.run_experiments({"wrong": wrong})
            except tune.TuneError as error:
                print(f"wrong_{len(str(wrong))}={type(error).__mro__[-4:] != ()}")

        class Breaks(tune.Callback):
            def on_trial_result(self, **info):
                raise KeyError("in a callback")

        for name, how in (("plain", False), ("raise", "raise")):
            config = tune.RunConfig(
                callbacks=[Breaks()], failure_config=tune.FailureConfig(fail_fast=how), name=name, **quiet
            )
            try:
                tune.Tuner(function, param_space={"x": 1}, run_config=config).fit()
            except Exception as error:
                print(f"{name}={type(error).__name__} {type(error.__cause__).__name__}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["searcher"] == "[((2, 2), {}), (None, {'error': True})]"
    assert (found["best"], found["named"]) == ("1 loss", "True function")
    assert (found["reserves"], found["grid"]) == ("{'CPU': 1.0} False", "2 2")
    assert (found["counted"], found["older"]) == ("[10, 10, None]", "True")
    assert found["nan"] == "None True"
    assert (found["raised"], found["failed"]) == ("True", "ERROR")
    assert sum(name.startswith("wrong_") for name in found) == 3
    assert (found["plain"], found["raise"]) == ("TuneError KeyError", "KeyError NoneType")


def test_how_a_trainer_is_scaled_can_be_searched(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        import ray
        from ray import train, tune
        from ray.train import ScalingConfig
        from ray.train.data_parallel_trainer import DataParallelTrainer

        ray.init(num_cpus=2)

        def loop(config):
            train.report({"workers": train.get_context().get_world_size(), "lr": config["lr"]})

        spaces = {
            "fields": ScalingConfig(num_workers=tune.grid_search([1, 2])),
            "dict": {"num_workers": tune.choice([2])},
            "configs": tune.grid_search([ScalingConfig(num_workers=2), ScalingConfig(resources_per_worker={"CPU": 2})]),
        }
        for name, scaling in spaces.items():
            grid = tune.Tuner(
                DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=1)),
                param_space={"scaling_config": scaling, "train_loop_config": {"lr": 0.5}},
                run_config=tune.RunConfig(name=name, storage_path=os.getcwd(), verbose=0),
            ).fit()
            assert not grid.num_errors, grid.errors
            reserved = [result.config["scaling_config"]["resources_per_worker"] for result in grid]
            print(f"{name}={[(result.metrics['workers'], result.metrics['lr']) for result in grid]} {reserved[-1]}")
        try:
            tune.Tuner(DataParallelTrainer(loop), param_space={"run_config": {}})
        except Exception as error:
            print(f"refused={'scaling_config' in str(error)}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["fields"] == "[(1, 0.5), (2, 0.5)] {'CPU': 1.0}"
    assert found["dict"] == "[(2, 0.5)] {'CPU': 1.0}"
    assert found["configs"] == "[(2, 0.5), (1, 0.5)] {'CPU': 2.0}"
    assert found["refused"] == "True"


def test_what_ray_refuses_warns_of_and_keeps_in_a_search(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        import pickle
        import sys
        import warnings
        import ray
        from ray import train, tune
        from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter
        from ray.tune.utils import validate_save_restore
        from ray.util.annotations import RayDeprecationWarning

        ray.init(num_cpus=2)

        def config(name, **more):
            return tune.RunConfig(name=name, storage_path=os.getcwd(), verbose=0, **more)

        def fails(space):
            print("this is printed")
            print("and this is an error", file=sys.stderr)
            raise KeyError("on purpose")

        failed = tune.Tuner(fails, run_config=config("failed", log_to_file=True)).fit()
        error = pickle.loads(pickle.dumps(failed.errors[0]))
        kinds = (isinstance(error, KeyError), isinstance(error, ray.exceptions.RayTaskError), type(error.cause).__name__)
        print(f"error={kinds} {'on purpose' in str(error)}")
        written = [open(os.path.join(failed[0].path, name)).read().strip() for name in ("stdout", "stderr")]
        print(f"written={written}")
        print(f"repr={[word for word in ('trial_id', 'config', 'timestamp') if word in repr(failed[0])]}")

        class Counts(tune.Callback):
            count = 0

            def on_trial_result(self, **info):
                self.count += 1

            def get_state(self):
                return {"count": self.count}

            def set_state(self, state):
                self.count = state["count"] + 100

        def warned(space):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                train.get_context(), train.get_checkpoint(), train.report({"x": 1})
            kinds = [one.category is RayDeprecationWarning for one in caught]
            tune.report({"warned": sum(kinds), "named": [str(one.message).count("ray.tune.") for one in caught]})

        result = tune.Tuner(warned, run_config=config("warned", callbacks=[Counts()])).fit()[0]
        print(f"warned={result.metrics.get('warned')} {result.metrics.get('named')}")
        restored = tune.Tuner.restore(os.path.join(os.getcwd(), "warned"), warned)
        print(f"restored={restored._plan.run_config.callbacks[0].count}")

        class Steps(tune.Trainable):
            def setup(self, config):
                self.steps = 0

            def step(self):
                self.steps += 1
                return {"steps": self.steps}

            def save_checkpoint(self, directory):
                return {"steps": self.steps}

            def load_checkpoint(self, state):
                self.steps = state["steps"]

        print(f"saves={validate_save_restore(Steps)}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tune.run(
                Steps,
                stop={"training_iteration": 1},
                checkpoint_freq=1,
                keep_checkpoints_num=1,
                storage_path=os.getcwd(),
                verbose=0,
            )
        print(f"older={sum(one.category is DeprecationWarning for one in caught)}")

        limited = ConcurrencyLimiter(BasicVariantGenerator(), max_concurrent=2)
        both = tune.TuneConfig(search_alg=limited, max_concurrent_trials=1)
        attempts = {
            "limits": lambda: tune.Tuner(fails, tune_config=both),
            "nowhere": lambda: tune.ExperimentAnalysis("/nowhere"),
            "instance": lambda: restored.restore("/nowhere", warned),
            "nothing": lambda: tune.Tuner(),
            "unknown": lambda: tune.Tuner("unknown"),
            "file": lambda: tune.Tuner(fails, run_config=config("file", log_to_file=3)),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
            except Exception as raised:
                kinds = [kind.__name__ for kind in (ValueError, AttributeError, tune.TuneError) if isinstance(raised, kind)]
                print(f"{name}={kinds}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["error"] == "(True, True, 'KeyError') True"
    assert found["written"] == "['this is printed', 'and this is an error']"
    assert found["repr"] == "[]"
    assert found["warned"] == "3 [1, 1, 1]"
    # Two reports, and what `set_state` adds.
    assert found["restored"] == "102"
    assert (found["saves"], found["older"]) == ("True", "2")
    assert (found["limits"], found["nowhere"], found["instance"]) == (
        "['ValueError']",
        "['ValueError']",
        "['AttributeError']",
    )
    assert found["nothing"] == found["unknown"] == "['ValueError', 'TuneError']"
    assert found["file"] == "['ValueError']"


def test_callbacks_that_the_environment_names_hear_of_trials(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        import sys
        import threading
        from ray import tune

        with open("of_mine.py", "w") as file:
            file.write(
                "from ray import tune\\n"
                "class Hears(tune.Callback):\\n"
                "    def on_trial_result(self, trial, result, **info):\\n"
                "        print(f'heard={result[\\"x\\"]}')\\n"
            )
        sys.path.insert(0, os.getcwd())
        lock = threading.Lock()

        def function(config):
            tune.report({"x": 7})

        def unsendable(config):
            print(lock)

        def search(trainable, names):
            os.environ["RAY_TUNE_CALLBACKS"] = names
            return tune.Tuner(trainable, run_config=tune.RunConfig(storage_path=os.getcwd(), verbose=0)).fit()

        assert not search(function, "of_mine.Hears").num_errors
        for name, names in {"unknown": "of_mine.Nobody", "other": "os.getcwd"}.items():
            try:
                search(function, names)
            except ValueError as error:
                print(f"{name}={names in str(error)}")
        try:
            search(unsendable, "")
        except TypeError as error:
            print(f"unsendable={'lock' in str(error)}")
        """,
        before=AS_RAY,
    )
    assert values(output) == {"heard": "7", "unknown": "True", "other": "True", "unsendable": "True"}
