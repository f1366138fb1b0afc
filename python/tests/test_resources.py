"""What a machine counts as having, and how a group of workers gets its part of it.

CPUs are a count that `init()` can raise; a group is placed whole or not at all; the hint of an error is a line that,
when it is run, makes the group fit.
"""

import os
import re

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401


def test_the_affinity_mask_counts_and_not_the_machine(scripts: Scripts) -> None:
    source = """
        import carril
        carril.init()
        print(f"cpus={carril.cluster_resources()['CPU']}")
    """
    assert values(scripts.run(source, before=("taskset", "-c", "0")))["cpus"] == "1.0"
    both = values(scripts.run(source))["cpus"]
    assert float(both) <= len(os.sched_getaffinity(0))


def test_init_raises_the_count_of_cpus(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import carril
        from carril import train

        carril.init(num_cpus=8)
        scaling = train.ScalingConfig(num_workers=8)
        ranks = train.DataParallelTrainer(lambda: train.get_context().get_world_size(), scaling_config=scaling)
        print(f"workers={ranks.fit().return_value}")
        """,
        before=("taskset", "-c", "0"),
    )
    assert values(output)["workers"] == "8"


def test_what_a_group_holds_is_not_available_until_it_ends(scripts: Scripts) -> None:
    output = scripts.run("""
        import os, threading, time
        import carril
        from carril import train

        def loop():
            train.report({"up": 1})
            while not os.path.exists("go"):
                time.sleep(0.01)

        carril.init(num_cpus=6, resources={"license": 3})
        scaling = train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1.5, "license": 1})
        thread = threading.Thread(target=train.DataParallelTrainer(loop, scaling_config=scaling).fit)
        thread.start()
        while carril.available_resources()["CPU"] == 6:
            time.sleep(0.01)
        free = carril.available_resources()
        print(f"during={free['CPU']} {free['license']}")
        print(f"total={carril.cluster_resources()['CPU']} {carril.cluster_resources()['license']}")
        open("go", "w").close()
        thread.join()
        free = carril.available_resources()
        print(f"after={free['CPU']} {free['license']}")
    """)
    found = values(output)
    assert (found["during"], found["total"], found["after"]) == ("3.0 1.0", "6.0 3.0", "6.0 3.0")


def test_a_group_that_waits_says_at_once_what_is_asked_and_what_is_free(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, threading, time
        import carril
        from carril import train

        def hold():
            while not os.path.exists("go"):
                time.sleep(0.01)

        def fit(function, workers, cpus, name):
            scaling = train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": cpus})
            return train.DataParallelTrainer(function, scaling_config=scaling, run_config=train.RunConfig(name=name)).fit()

        carril.init(num_cpus=4)
        holder = threading.Thread(target=fit, args=(hold, 3, 1, "holder"))
        holder.start()
        while carril.available_resources()["CPU"] == 4:
            time.sleep(0.01)
        waiter = threading.Thread(target=fit, args=(lambda: print("placed", flush=True), 2, 1, "waiter"))
        waiter.start()
        waiter.join()
        holder.join()
        print(f"free={carril.available_resources()['CPU']}", flush=True)
    """)
    script.wait_for(r"carril: waiting: asks for 2 CPU, free is 1 CPU")
    # Whole or not at all: one of the two would have room.
    assert "placed" not in script.output
    (scripts.directory / "go").touch()
    assert script.finish() == 0, script.output
    assert script.output.count("placed") == 2
    assert values(script.output)["free"] == "4.0"


def test_the_message_of_a_wait_names_the_run_that_waits(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, threading, time
        import carril
        from carril import train

        def hold():
            while not os.path.exists("go"):
                time.sleep(0.01)

        def fit(name):
            train.DataParallelTrainer(hold, run_config=train.RunConfig(name=name)).fit()

        carril.init(num_cpus=1)
        threads = [threading.Thread(target=fit, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """)
    (line,) = script.wait_for(r"carril: (waiting: .*)")
    (scripts.directory / "go").touch()
    assert script.finish() == 0, script.output
    assert line == "waiting: asks for 1 CPU, free is 0 CPU: waits for 1 other run"


NEVER = """
    import sys
    import carril
    from carril import train

    {init}
    def loop():
        return train.get_context().get_world_size()

    trainer = train.DataParallelTrainer(
        loop, scaling_config=train.ScalingConfig({scaling}), run_config=train.RunConfig(name="never")
    )
    try:
        print(f"workers={{trainer.fit().return_value}}")
    except carril.exceptions.PlacementError as error:
        print(f"code={{error.code}} {{error.origin}}")
        print(error)
"""


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ("num_workers=6", "6 workers with 1 CPU each ask for 6 CPU: this machine has 2 CPU"),
        (
            "num_workers=2, resources_per_worker={'CPU': 2}",
            "2 workers with 2 CPU each ask for 4 CPU: this machine has 2 CPU",
        ),
        ("num_workers=1, resources_per_worker={'CPU': 2.5}", "asks for 2.5 CPU: this machine has 2 CPU"),
        ("num_workers=3, resources_per_worker={'CPU': 0, 'disk': 2}", "ask for 6 disk: this machine has 0 disk"),
        ("num_workers=3, resources_per_worker={'CPU': 1, 'disk': 0.5}", "this machine has 2 CPU, 0 disk"),
    ],
)
def test_what_can_never_fit_is_an_error_whose_hint_makes_it_fit(scripts: Scripts, scaling: str, message: str) -> None:
    before = ("taskset", "-c", "0,1")
    output = scripts.run(NEVER.format(init="", scaling=scaling), before=before)
    assert values(output)["code"] == "placement-impossible user"
    assert message in output
    # Refused before anything was made: the name is free for the next try.
    assert not (scripts.storage / "never").exists()
    (line,) = re.findall(r"^hint: (carril\.init\(.*\))$", output, re.MULTILINE)
    output = scripts.run(NEVER.format(init=line, scaling=scaling), before=before)
    assert values(output)["workers"] == re.search(r"num_workers=(\d+)", scaling).group(1)


@pytest.mark.parametrize(
    ("init", "scaling"),
    [
        ("carril.init(num_cpus=3)", "num_workers=2, resources_per_worker={'CPU': 2}"),
        ("carril.init(num_cpus=1, resources={'disk': 1})", "num_workers=2, resources_per_worker={'disk': 1}"),
    ],
)
def test_the_hint_also_holds_after_an_init_of_ones_own(scripts: Scripts, init: str, scaling: str) -> None:
    output = scripts.run(NEVER.format(init=init, scaling=scaling))
    (line,) = re.findall(r"^hint: (carril\.init\(.*\))$", output, re.MULTILINE)
    output = scripts.run(NEVER.format(init=line, scaling=scaling))
    assert values(output)["workers"] == "2"


def test_fewer_workers_are_the_other_hint_where_some_fit(scripts: Scripts) -> None:
    output = scripts.run(NEVER.format(init="carril.init(num_cpus=3)", scaling="num_workers=5"))
    (smaller,) = re.findall(r"^hint: ScalingConfig\((.*)\)$", output, re.MULTILINE)
    output = scripts.run(NEVER.format(init="carril.init(num_cpus=3)", scaling=smaller))
    assert values(output)["workers"] == "3"


def test_gpus_where_there_are_none_are_an_error_with_the_way_out(scripts: Scripts) -> None:
    output = scripts.run(NEVER.format(init="", scaling="num_workers=1, use_gpu=True"))
    assert values(output)["code"] == "placement-impossible user"
    assert "this machine has 2 CPU, 0 GPU" in output or "0 GPU" in output
    (line,) = re.findall(r"^hint: .*ScalingConfig\((.*)\)$", output, re.MULTILINE)
    output = scripts.run(NEVER.format(init="", scaling="num_workers=1, " + line))
    assert values(output)["workers"] == "1"


DEVICES = """
    import os
    import carril
    from carril import train

    def loop():
        print(f"visible={os.environ.get('CUDA_VISIBLE_DEVICES')}", flush=True)
        print(f"resources={train.get_context().get_trial_resources()}", flush=True)

    carril.init(num_cpus=4, num_gpus=2)
    print(f"gpus={carril.cluster_resources()['GPU']}")
    scaling = train.ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker=RESOURCES)
    train.DataParallelTrainer(loop, scaling_config=scaling).fit()
    print(f"left={carril.available_resources()['GPU']}")
"""


@pytest.mark.parametrize("share", ["None", "{'GPU': 1}", "{'GPU': 0.5}"])
def test_gpus_that_init_names_are_given_to_workers_and_back(scripts: Scripts, share: str) -> None:
    output = scripts.run(DEVICES.replace("RESOURCES", share))
    found = values(output)
    assert (found["gpus"], found["left"]) == ("2.0", "2.0")
    amount = "0.5" if "0.5" in share else "1"
    assert f"'GPU': {amount}" in found["resources0"]


def test_a_worker_without_gpus_keeps_the_drivers_variable(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import os
        from carril import train

        train.DataParallelTrainer(lambda: print(f"visible={os.environ.get('CUDA_VISIBLE_DEVICES')}", flush=True)).fit()
        """,
        CUDA_VISIBLE_DEVICES="3",
    )
    assert values(output)["visible0"] == "3"


def test_devices_that_are_not_there_are_not_counted_whatever_the_variable_says(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import carril
        carril.init()
        print(f"gpus={carril.cluster_resources().get('GPU', 0.0)}")
        """,
        CUDA_VISIBLE_DEVICES="0,1,2",
    )
    assert values(output)["gpus"] == "0.0"


def test_a_worker_of_two_cpus_gets_two_threads(scripts: Scripts) -> None:
    output = scripts.run("""
        import os
        import carril
        from carril import train

        carril.init(num_cpus=4)
        for cpus in (1, 2):
            scaling = train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": cpus})
            trainer = train.DataParallelTrainer(lambda: os.environ["OMP_NUM_THREADS"], scaling_config=scaling)
            print(f"threads_of_{cpus}={trainer.fit().return_value}")
    """)
    assert values(output) == {"threads_of_1": "1", "threads_of_2": "2"}


def test_a_group_that_waits_lets_no_later_one_pass(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, threading, time
        import carril
        from carril import train

        def hold():
            while not os.path.exists("go"):
                time.sleep(0.01)

        def fit(function, workers, name):
            scaling = train.ScalingConfig(num_workers=workers)
            train.DataParallelTrainer(function, scaling_config=scaling, run_config=train.RunConfig(name=name)).fit()

        def tell(name):
            return lambda: print(f"ran {name}", flush=True) if train.get_context().get_world_rank() == 0 else None

        carril.init(num_cpus=3)
        threads = [threading.Thread(target=fit, args=(hold, 2, "holder"))]
        threads[0].start()
        while carril.available_resources()["CPU"] == 3:
            time.sleep(0.01)
        threads.append(threading.Thread(target=fit, args=(tell("large"), 3, "large")))
        threads[1].start()
        while not os.path.exists(os.path.expanduser("~/carril_results/large")):
            time.sleep(0.01)
        threads.append(threading.Thread(target=fit, args=(tell("small"), 1, "small")))
        threads[2].start()
        for thread in threads:
            thread.join()
    """)
    script.wait_for("waiting: asks for 3 CPU, free is 1 CPU")
    script.wait_for("waiting: asks for 1 CPU")
    assert not re.search(r"\) ran \w+", script.output)
    (scripts.directory / "go").touch()
    assert script.finish() == 0, script.output
    assert re.findall(r"\) ran (\w+)", script.output) == ["large", "small"]
