"""`carril as-ray -- COMMAND`: the name `ray` stands for us, in whatever way the command gets to a Python.

Each test runs the installed command as a user does. The scripts that need torch are among the examples.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401

from carril._internal.command import find_command

CARRIL = find_command()
AS_RAY = (CARRIL, "as-ray", "--")

SMALL = """
    import sys
    import ray
    from ray import train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop(config):
        context = train.get_context()
        for step in range(3):
            train.report({"step": step, "rank": context.get_world_rank()})

    if __name__ == "__main__":
        print(f"version={ray.__version__}")
        print(f"ours={'carril' in ray.__file__}")
        result = DataParallelTrainer(
            loop, train_loop_config={}, scaling_config=train.ScalingConfig(num_workers=2)
        ).fit()
        print(f"step={result.metrics['step']}")
        print(f"path={result.path}")
        print(f"fields={sorted(set(result.metrics) - {'step', 'rank'})}")
"""


def is_ours(output: str) -> None:
    assert (values(output)["ours"], values(output)["step"]) == ("True", "2")


def test_a_script_of_today_runs_unchanged_without_automatic_fields(scripts: Scripts) -> None:
    output = scripts.run(SMALL, before=AS_RAY)
    is_ours(output)
    assert re.fullmatch(r"\d+\.\d+\.\d+", values(output)["version"])
    assert values(output)["fields"] == "[]"
    # Where Ray would keep it.
    assert Path(values(output)["path"]).parent == scripts.directory / "ray_results"
    assert not scripts.storage.exists()


def test_an_older_script_has_the_automatic_fields(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import ray
        from ray.air import session
        from ray.air.config import RunConfig, ScalingConfig
        from ray.train.data_parallel_trainer import DataParallelTrainer

        def loop(config):
            for step in range(3):
                session.report(dict(step=step, size=session.get_world_size()))

        trainer = DataParallelTrainer(
            loop, train_loop_config={}, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(name="old")
        )
        result = trainer.fit()
        print(f"size={result.metrics['size']}")
        print(f"iteration={result.metrics['training_iteration']}")
        print(f"fields={sorted(name for name in result.metrics if name in ('pid', 'hostname', 'trial_id', 'done', 'config'))}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert (found["size"], found["iteration"]) == ("2", "3")
    assert found["fields"] == "['config', 'done', 'hostname', 'pid', 'trial_id']"


def test_the_variable_of_the_older_generation_brings_the_fields_too(scripts: Scripts) -> None:
    output = scripts.run(SMALL, before=AS_RAY, RAY_TRAIN_V2_ENABLED="0")
    assert "training_iteration" in values(output)["fields"]


SHELLS = {
    "a login shell": ("bash", "-lc", "{python} script.py"),
    "a plain shell": ("sh", "-c", "{python} script.py"),
    "a script for bash": ("bash", "job.sh"),
    "a shell in a shell": ("bash", "-c", "bash -lc '{python} script.py'"),
    "env": ("env", "OTHER=1", "{python}", "script.py"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_name_survives_shells(scripts: Scripts, shell: str) -> None:
    scripts.write(SMALL)
    scripts.write(f"set -eu\n{sys.executable} script.py\n", "job.sh")
    # As profiles do: they set what they know and forget the rest.
    scripts.write("export PATH=/usr/local/bin:/usr/bin:/bin\nexport PYTHONPATH=/profile\n", ".bash_profile")
    command = [part.format(python=sys.executable) for part in SHELLS[shell]]
    script = scripts.start_command(*AS_RAY, *command)
    assert script.finish() == 0, script.output
    is_ours(script.output)


def test_an_activated_environment_with_a_ray_of_its_own_is_no_obstacle(scripts: Scripts) -> None:
    """A venv whose `ray` is the real one, as far as anybody can tell before it is imported."""
    venv = scripts.directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(venv)], check=True)
    site = next((venv / "lib").iterdir()) / "site-packages"
    (site / "ray").mkdir()
    (site / "ray" / "__init__.py").write_text("raise SystemExit('the real ray was imported')\n")
    (venv / "bin" / "ray").write_text("#!/bin/sh\necho the real command\n")
    (venv / "bin" / "ray").chmod(0o755)
    import carril

    (site / "here.pth").write_text(str(Path(carril.__file__).parents[1]) + "\n")
    scripts.write(SMALL)
    script = scripts.start_command(*AS_RAY, "bash", "-c", f". {venv}/bin/activate; python script.py; ray --version")
    assert script.finish() == 0, script.output
    is_ours(script.output)
    assert f"ray, version {values(script.output)['version']}" in script.output
    assert "the real" not in script.output


def test_a_file_ray_py_in_the_way_is_named_before_anything_runs(scripts: Scripts) -> None:
    in_the_way = scripts.write("print('mine')", "ray.py")
    script = scripts.start(SMALL, before=AS_RAY)
    assert script.finish() == 2
    assert str(in_the_way) in script.output
    assert "hint: rename or move it" in script.output
    assert "mine" not in script.output.replace(str(in_the_way), "")


@pytest.mark.parametrize("arguments", [("-c", "import ray.train"), ("-m", "job")])
def test_a_file_ray_py_is_noticed_where_python_looks_in_the_working_directory(
    scripts: Scripts, arguments: tuple[str, ...]
) -> None:
    scripts.write("", "ray.py")
    scripts.write("import ray.train\n", "job.py")
    script = scripts.start_command(*AS_RAY, sys.executable, *arguments)
    assert script.finish() == 2, script.output
    assert "ray.py" in script.output
    assert "hint: rename or move it" in script.output


@pytest.mark.parametrize("option", ["-I", "-E", "-IB", "-sE"])
def test_an_option_of_python_that_hides_the_name_is_refused(scripts: Scripts, option: str) -> None:
    scripts.write(SMALL)
    script = scripts.start_command(*AS_RAY, sys.executable, option, "script.py")
    assert script.finish() == 2
    assert f"`{option}`" in script.output
    assert "hint: leave the option out" in script.output


@pytest.mark.parametrize("options", [("-u",), ("-W", "ignore"), ("-X", "utf8"), ("-B", "-u"), ("-Wignore",)])
def test_other_options_of_python_are_let_through(scripts: Scripts, options: tuple[str, ...]) -> None:
    scripts.write(SMALL)
    script = scripts.start_command(*AS_RAY, sys.executable, *options, "script.py")
    assert script.finish() == 0, script.output
    is_ours(script.output)


def test_cpus_gpus_and_resources_of_the_command_count(scripts: Scripts) -> None:
    source = """
        import ray
        ray.init()
        print(f"resources={[ray.cluster_resources().get(name) for name in ('CPU', 'GPU', 'disk')]}")
    """
    before = (CARRIL, "as-ray", "--num-cpus", "8", "--num-gpus", "2", "--resource", "disk=3", "--")
    assert values(scripts.run(source, before=before))["resources"] == "[8.0, 2.0, 3.0]"


def test_eight_workers_run_with_num_cpus_8_on_any_machine(scripts: Scripts) -> None:
    output = scripts.run(
        SMALL.replace("num_workers=2", "num_workers=8"), before=(CARRIL, "as-ray", "--num-cpus", "8", "--")
    )
    is_ours(output)


def test_a_script_that_asks_for_its_own_cpus_gets_them(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import ray
        ray.init(num_cpus=5)
        print(f"cpus={ray.cluster_resources()['CPU']}")
        """,
        before=(CARRIL, "as-ray", "--num-cpus", "3", "--"),
    )
    assert values(output)["cpus"] == "5.0"


@pytest.mark.parametrize("arguments", [("--num-cpus", "-1"), ("--num-cpus", "many"), ("--resource", "disk"), ()])
def test_bad_usage_is_told_with_exit_code_2(scripts: Scripts, arguments: tuple[str, ...]) -> None:
    command = (*arguments, "--", "true") if arguments else ()
    script = scripts.start_command(CARRIL, "as-ray", *command)
    assert script.finish() == 2
    assert script.output.startswith("error: ")


def test_a_command_that_is_not_there_is_told_with_exit_code_2(scripts: Scripts) -> None:
    script = scripts.start_command(*AS_RAY, "no-such-command")
    assert script.finish() == 2
    assert script.output == "error: `no-such-command` is not found\n"


def test_a_script_in_the_place_of_the_command_is_told_with_the_way_out(scripts: Scripts, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import ray")
    script = scripts.start_command(*AS_RAY, str(path))
    assert script.finish() == 2
    way = f"hint: `carril as-ray -- python {path}`\n"
    assert script.output == f"error: cannot run `{path}`: Permission denied (os error 13)\n{way}"


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands(scripts: Scripts, code: int) -> None:
    script = scripts.start(f"import sys; sys.exit({code})", before=AS_RAY)
    assert script.finish() == code


def test_a_command_that_is_no_python_runs_as_it_is(scripts: Scripts) -> None:
    script = scripts.start_command(*AS_RAY, "sh", "-c", "echo $CARRIL_AS_RAY; kill -9 $$")
    assert script.finish() == -9
    assert script.output == "1\n"


def test_the_name_of_a_finished_run_can_be_used_again_and_goes_on_from_its_checkpoint(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import tempfile
        from pathlib import Path
        from ray import train
        from ray.train import Checkpoint, RunConfig
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        def loop():
            before = train.get_checkpoint()
            epoch = 0
            if before is not None:
                with before.as_directory() as directory:
                    epoch = int(Path(directory, "epoch").read_text()) + 1
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "epoch").write_text(str(epoch))
                train.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(directory))

        for number in range(2):
            result = DataParallelTrainer(loop, run_config=RunConfig(name="again")).fit()
            print(f"epoch_of_{number}={result.metrics['epoch']}")
            print(f"path_of_{number}={result.path}")
        """,
        before=AS_RAY,
    )
    found = values(output)
    assert found["path_of_0"] == found["path_of_1"]
    assert (found["epoch_of_0"], found["epoch_of_1"]) == ("0", "1")


@pytest.mark.parametrize(
    "line",
    [
        "from ray import serve",
        "import ray.rllib",
        "from ray.tune.utils.log import Verbosity",
        "from ray.train.lightning import RayDDPStrategy",
        "import ray.train.xgboost",
        "from ray.util.multiprocessing import Pool",
        "import ray; ray.get(1)",
        "import ray; ray.remote(print)",
        "import ray; ray.data.read_sql('select 1', print)",
        "from ray.train.huggingface.transformers import RayTrainReportCallback",
    ],
)
def test_what_is_not_there_yet_says_so_by_name(scripts: Scripts, line: str) -> None:
    script = scripts.start(line, before=AS_RAY)
    assert script.finish() == 1
    assert re.search(
        r"Missing(?:Name|Attribute)Error: `ray\.[\w.]+` is not (?:available yet|part of carril).*\nhint: ",
        script.output,
    ), script.output
    name = re.search(r"`(ray\.[\w.]+)` is not", script.output).group(1)
    assert name.split(".")[1] in line


def test_a_library_that_can_do_without_ray_goes_on(scripts: Scripts) -> None:
    output = scripts.run(
        """
        try:
            from ray.tune.utils.log import Verbosity
        except ImportError:
            print("utils=none")
        try:
            import ray.rllib
        except ModuleNotFoundError:
            print("rllib=none")
        import ray
        print(f"nonsense={hasattr(ray, 'no_such_name')}")
        """,
        before=AS_RAY,
    )
    assert values(output) == {"utils": "none", "rllib": "none", "nonsense": "False"}


def test_the_command_ray_answers(scripts: Scripts) -> None:
    script = scripts.start_command(*AS_RAY, "sh", "-c", "ray --version && ! ray start --head")
    assert script.finish() == 0, script.output
    assert re.match(r"ray, version \d+\.\d+\.\d+\n", script.output)
    assert "`ray start` is not available yet" in script.output
    assert "nothing has to be started" in script.output


def test_outside_the_command_the_name_is_not_ours(scripts: Scripts) -> None:
    script = scripts.start("import ray")
    assert script.finish() == 1
    assert "No module named 'ray'" in script.output


def test_the_head_of_the_command_ends_with_it(scripts: Scripts) -> None:
    script = scripts.start_command(*AS_RAY, sys.executable, "-c", "import os; print(os.environ['CARRIL_HEAD'])")
    assert script.finish() == 0, script.output
    script.is_alone()
    assert not Path(script.output.strip()).exists()
    assert os.path.isabs(script.output.strip())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_end_the_command_with_all_that_it_started(scripts: Scripts, number: signal.Signals) -> None:
    script = scripts.start(
        """
        import time
        from ray import train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        def loop():
            print("worker up", flush=True)
            time.sleep(1000)

        DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2)).fit()
        """,
        before=AS_RAY,
    )
    script.wait_for("worker up", times=2)
    script.send(number)
    assert script.finish() == -number, script.output
    script.is_alone()
