"""The driver's side: `init()` and what it implies, several runs in one process, threads, forks, the head's end."""

import os
import signal
from pathlib import Path

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401

import carril
from carril import train
from carril.exceptions import ConfigError, NotAvailableError


@pytest.fixture
def closed() -> object:
    """Whatever a test of this process has started is ended after it."""
    yield
    carril.shutdown()


def fit(storage: Path, function: object, **arguments: object) -> train.Result:
    config = train.RunConfig(storage_path=str(storage), verbose=0)
    return train.DataParallelTrainer(function, run_config=config, **arguments).fit()


def test_init_starts_a_head_and_shutdown_ends_it(closed: None) -> None:
    assert not carril.is_initialized()
    context = carril.init(num_cpus=3, resources={"disk": 2})
    assert carril.is_initialized()
    directory = Path(context["session_dir"])
    assert directory.is_dir()
    assert context.address_info["address"] == str(directory / "head.sock")
    (node,) = carril.nodes()
    assert node["Alive"] is True
    assert node["NodeManagerHostname"] == os.uname().nodename
    assert node["Resources"] == carril.cluster_resources() == carril.available_resources()
    assert carril.cluster_resources()["CPU"] == 3
    assert carril.cluster_resources()["disk"] == 2
    assert carril.cluster_resources()["memory"] > 0
    carril.shutdown()
    assert not carril.is_initialized()
    assert not directory.exists()
    carril.shutdown()


def test_the_context_ends_the_head_at_the_end_of_its_block() -> None:
    with carril.init() as context:
        directory = Path(context["session_dir"])
        assert carril.is_initialized()
    assert not carril.is_initialized()
    assert not directory.exists()


def test_init_twice_is_an_error_with_both_ways_out(closed: None) -> None:
    first = carril.init(num_cpus=2)
    with pytest.raises(RuntimeError, match=r"(?s)was called before.*shutdown\(\).*ignore_reinit_error=True"):
        carril.init()
    again = carril.init(num_cpus=5, ignore_reinit_error=True)
    assert again["address"] == first["address"]
    assert carril.cluster_resources()["CPU"] == 2


@pytest.mark.parametrize("name", ["nodes", "cluster_resources", "available_resources"])
def test_questions_before_init_are_an_error_that_names_the_call(name: str) -> None:
    with pytest.raises(ConnectionError, match=rf"(?s)`{name}\(\)`.*carril.init\(\)"):
        getattr(carril, name)()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_cpus": -1}, ConfigError, "`num_cpus` is -1"),
        ({"num_gpus": "two"}, ConfigError, "`num_gpus` is 'two'"),
        ({"num_cpus": float("nan")}, ConfigError, "`num_cpus` is nan"),
        ({"num_cpus": float("inf")}, ConfigError, "`num_cpus` is inf"),
        ({"resources": {"CPU": 4}}, ConfigError, "num_cpus"),
        ({"resources": {"disk": -2}}, ConfigError, "disk"),
        ({"resources": {"": 1}}, ConfigError, "name"),
        ({"address": "ray://host:10001"}, NotAvailableError, "other hosts are not built yet"),
        ({"address": "auto"}, ConnectionError, "no head is running here"),
        ({"labels": {"zone": "a"}}, NotAvailableError, "labels"),
        ({"local_mode": True}, NotAvailableError, "num_workers=0"),
        ({"runtime_env": {"pip": ["x"]}}, NotAvailableError, "pip"),
        ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "names and values must be text"),
        ({"no_such_argument": 1}, TypeError, "no_such_argument"),
    ],
)
def test_init_refuses_what_it_cannot_do(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(")):
        carril.init(**arguments)
    assert not carril.is_initialized()


def test_init_takes_the_arguments_of_ray_that_have_nothing_to_act_on(closed: None) -> None:
    carril.init(
        include_dashboard=False,
        dashboard_host="0.0.0.0",
        namespace="mine",
        object_store_memory=10**8,
        configure_logging=True,
        logging_level="info",
        _temp_dir="/nowhere",
    )
    assert carril.is_initialized()


def test_fit_implies_init_and_a_second_fit_has_the_same_head(closed: None, storage: Path) -> None:
    assert not carril.is_initialized()
    first = fit(storage, os.getppid).return_value
    assert carril.is_initialized()
    second = fit(storage, os.getppid).return_value
    assert first == second


def test_variables_of_the_runtime_environment_reach_the_workers(closed: None, storage: Path) -> None:
    carril.init(runtime_env={"env_vars": {"FROM_INIT": "one", "FROM_BOTH": "init"}})
    config = train.RunConfig(
        storage_path=str(storage), verbose=0, worker_runtime_env={"env_vars": {"FROM_BOTH": "run"}}
    )
    trainer = train.DataParallelTrainer(
        lambda: [os.environ.get(name) for name in ("FROM_INIT", "FROM_BOTH")], run_config=config
    )
    assert trainer.fit().return_value == ["one", "run"]
    assert "FROM_INIT" not in os.environ


def test_a_second_fit_has_the_same_zygote(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, time
        from carril import train

        for number in range(2):
            train.DataParallelTrainer(lambda: None).fit()
            print(f"done {number}", flush=True)
            while not os.path.exists(f"go-{number}"):
                time.sleep(0.01)
    """)
    zygotes = []
    for number in range(2):
        script.wait_for(f"done {number}")
        zygotes.append([found.pid for found in script.related("carril._internal.zygote")])
        (scripts.directory / f"go-{number}").touch()
    assert script.finish() == 0, script.output
    assert len(zygotes[0]) == 1
    assert zygotes[0] == zygotes[1]


def test_two_fits_at_once_run_side_by_side(scripts: Scripts) -> None:
    # Each run waits for a file that the other one makes: one after the other they would never end.
    output = scripts.run("""
        import os, threading, time
        import carril
        from carril import train

        def loop(config):
            context = train.get_context()
            open(f"here-{config['mine']}-{context.get_world_rank()}", "w").close()
            while not os.path.exists(f"here-{config['other']}-{context.get_world_rank()}"):
                time.sleep(0.01)
            for step in range(100):
                train.report({"who": config["mine"], "step": step})
            return config["mine"]

        def fit(mine, other):
            trainer = train.DataParallelTrainer(
                loop,
                train_loop_config={"mine": mine, "other": other},
                scaling_config=train.ScalingConfig(num_workers=2),
                run_config=train.RunConfig(name=mine),
            )
            results[mine] = trainer.fit()

        results = {}
        carril.init(num_cpus=4)
        threads = [threading.Thread(target=fit, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, result in sorted(results.items()):
            print(f"{name}={result.return_value} {result.metrics['who']} {result.metrics['training_iteration']}")
        print(f"free={carril.available_resources()['CPU']}")
    """)
    assert values(output) == {"a": "a a 100", "b": "b b 100", "free": "4.0"}


def test_two_first_fits_at_once_start_one_head(scripts: Scripts) -> None:
    output = scripts.run("""
        import os, threading
        from carril import train

        def fit():
            heads.append(train.DataParallelTrainer(os.getppid).fit().return_value)

        heads = []
        threads = [threading.Thread(target=fit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"runs={len(heads)}")
        print(f"heads={len(set(heads))}")
    """)
    assert values(output) == {"runs": "4", "heads": "1"}


def test_fit_outside_the_main_thread_returns_and_raises_like_inside(scripts: Scripts) -> None:
    output = scripts.run("""
        from concurrent.futures import ThreadPoolExecutor
        from carril import train

        def bad():
            raise KeyError("mine")

        with ThreadPoolExecutor(1) as pool:
            good = pool.submit(train.DataParallelTrainer(lambda: "good").fit).result()
            error = pool.submit(train.DataParallelTrainer(bad).fit).exception()
        print(f"returned={good.return_value}")
        print(f"raised={type(error).__name__} {error.worker_failures[0]!r}")
    """)
    assert values(output) == {"returned": "good", "raised": "WorkerGroupError KeyError('mine')"}


ENDINGS = {
    "falls off its end": ("pass", 0),
    "sys.exit": ("sys.exit(4)", 4),
    "os._exit": ("os._exit(5)", 5),
    "raises": ("raise ValueError('mine')", 1),
    "aborts": ("os.abort()", -signal.SIGABRT),
    "closes stdout": ("sys.stdout.close()", 0),
    "execs": ("os.execv('/bin/true', ['true'])", 0),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_private_head_ends_with_the_driver(scripts: Scripts, ending: str) -> None:
    line, code = ENDINGS[ending]
    script = scripts.start(f"""
        import os, sys
        import carril
        from carril import train

        train.DataParallelTrainer(lambda: None).fit()
        print("head", carril.is_initialized(), flush=True)
        {line}
    """)
    assert script.finish() == code, script.output
    assert "head True" in script.output
    script.is_alone()
    assert scripts.heads_directories() == []


def test_a_fork_of_the_driver_has_no_head_and_does_not_end_its_parents(scripts: Scripts) -> None:
    output = scripts.run("""
        import os, sys
        import carril
        from carril import train

        trainer = train.DataParallelTrainer(os.getppid)
        first = trainer.fit().return_value
        child = os.fork()
        if child == 0:
            print(f"child_has_one={carril.is_initialized()}", flush=True)
            own = trainer.fit().return_value
            print(f"child_own={own != first}", flush=True)
            sys.exit(0)
        print(f"child_code={os.waitpid(child, 0)[1]}")
        print(f"parent_same={trainer.fit().return_value == first}")
    """)
    found = values(output)
    assert found == {"child_has_one": "False", "child_own": "True", "child_code": "0", "parent_same": "True"}


def test_a_script_without_a_main_guard_is_told_so_by_a_spawned_child(scripts: Scripts) -> None:
    output = scripts.run("""
        import multiprocessing
        from carril import train

        train.DataParallelTrainer(lambda: None).fit()
        child = multiprocessing.get_context("spawn").Process(target=print)
        child.start()
        child.join()
        print(f"code={child.exitcode}")
    """)
    assert values(output)["code"] == "1"
    assert "if __name__ == '__main__':" in output


def test_a_worker_can_be_a_driver_itself(scripts: Scripts) -> None:
    output = scripts.run("""
        import os
        from carril import train

        def inner():
            return os.getppid()

        def outer():
            return os.getppid(), train.DataParallelTrainer(inner).fit().return_value

        one, two = train.DataParallelTrainer(outer).fit().return_value
        print(f"heads={len({one, two})}")
    """)
    assert values(output)["heads"] == "2"


def test_a_head_of_another_version_is_refused_with_both_versions(scripts: Scripts) -> None:
    """The command is given another version, byte by byte. The compiler moves the text in words of four."""
    from carril._internal.command import find_command

    other = scripts.directory / "carril"
    ours = carril.__version__
    theirs = "9" + ours[1:]
    other.write_bytes(Path(find_command()).read_bytes().replace(ours[:4].encode(), theirs[:4].encode()))
    other.chmod(0o755)
    output = scripts.run(f"""
        import carril
        from carril._native import Client

        try:
            Client.start_private({str(other)!r})
        except carril.exceptions.VersionMismatchError as error:
            print(f"code={{error.code}}")
            print(error)
    """)
    assert values(output)["code"] == "version-mismatch"
    assert f"carril {theirs}" in output or f"is {theirs}" in output
    assert f"carril {ours}" in output or f"is {ours}" in output
    assert "hint: install one version of carril" in output
