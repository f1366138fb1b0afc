"""Workers and the process that they are forked from: what they have of the driver's, and what they must not share.

Also the other way: where a fork cannot serve, the worker is started plainly, it works the same, and the reason is reported.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401

PLAIN = "started plainly"


IN_THE_ZYGOTE = "import os, sys\nif 'carril._internal.zygote' in sys.orig_argv and 'RANK' not in os.environ:\n"


def install(scripts: Scripts, name: str, source: str) -> dict[str, str]:
    """Makes a package that counts as installed; returns the variables with which it is found."""
    package = scripts.directory / "site-packages" / name
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(source)
    return {"PYTHONPATH": str(package.parent)}


def plainly(scripts: Scripts) -> dict[str, str]:
    """A package `restless` because of which no fork can serve: some time after its import it starts threads."""
    return install(
        scripts,
        "restless",
        IN_THE_ZYGOTE + "    import threading\n"
        "    wait = threading.Event().wait\n"
        "    def later():\n"
        "        while not os.path.exists(os.environ['HOME'] + '/now'):\n"
        "            wait(0.01)\n"
        "        for _ in range(3):\n"
        "            threading.Thread(target=wait, daemon=True).start()\n"
        "        open(os.environ['HOME'] + '/threads', 'w').close()\n"
        "    threading.Thread(target=later, daemon=True).start()\n"
        "def provoke():\n"
        "    import carril, time\n"
        "    from carril import train\n"
        "    train.DataParallelTrainer(lambda: None, run_config=train.RunConfig(verbose=2)).fit()\n"
        "    open(os.environ['HOME'] + '/now', 'w').close()\n"
        "    while not os.path.exists(os.environ['HOME'] + '/threads'):\n"
        "        time.sleep(0.01)\n",
    )


PLACE = """
    import json, os, sys, time
    import mine
    from carril import train

    def loop():
        import beside
        print("facts " + json.dumps({
            "directory": os.getcwd(),
            "path": sys.path,
            "argv": sys.argv,
            "variable": os.environ.get("MINE"),
            "late": os.environ.get("LATE"),
            "beside": beside.VALUE,
            "mine": mine.VALUE,
            "script": sys.modules["__main__"].__file__,
            "stdin": os.readlink("/proc/self/fd/0"),
            "session": os.getsid(0) == os.getpid(),
            "parent": os.getppid(),
            "threads": os.environ.get("OMP_NUM_THREADS"),
        }))
        # Not flushed, and no more of it: it is shown all the same, as it would be on a terminal.
        while not os.path.exists("../seen"):
            time.sleep(0.01)

    if __name__ == "__main__":
        import carril
        carril.init()
        os.environ["LATE"] = "set after init"
        sys.path.append("/added/later")
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        sys.path = [os.path.abspath(os.path.join("..", entry)) for entry in sys.path]
        print("path " + json.dumps(sys.path))
        train.DataParallelTrainer(
            loop,
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(verbose=2),
        ).fit()
"""


@pytest.mark.parametrize("how", ["forked", PLAIN])
def test_workers_have_the_drivers_directory_path_variables_and_arguments(scripts: Scripts, how: str) -> None:
    environment = plainly(scripts) if how == PLAIN else {}
    source = (
        PLACE
        if how == "forked"
        else PLACE.replace("import mine", "import mine, restless").replace("carril.init()", "restless.provoke()")
    )
    scripts.write("VALUE = 'beside the script'\n", "beside.py")
    scripts.write("VALUE = 'imported by the script'\n", "mine.py")
    script = scripts.start(source, "--epochs", "3", MINE="yes", **environment)
    script.wait_for(r"\(rank \d\) facts ", times=2)
    (scripts.directory / "seen").touch()
    assert script.finish() == 0, script.output
    output = script.output
    assert (PLAIN in output) == (how == PLAIN), output
    facts = [json.loads(text) for text in re.findall(r"\(rank \d\) facts (.*)", output)]
    assert len(facts) == 2
    path = json.loads(re.search(r"^path (.*)$", output, re.MULTILINE).group(1))
    for fact in facts:
        assert fact["directory"] == str(scripts.directory / "elsewhere")
        assert fact["argv"] == [str(scripts.directory / "script.py"), "--epochs", "3"]
        assert (fact["variable"], fact["late"]) == ("yes", "set after init")
        assert (fact["beside"], fact["mine"]) == ("beside the script", "imported by the script")
        assert fact["script"] == str(scripts.directory / "script.py")
        assert fact["stdin"] == "/dev/null"
        assert fact["session"] is True
        assert fact["threads"] == "1"
        assert fact["path"] == path
    assert facts[0]["parent"] == facts[1]["parent"] != os.getpid()


def test_a_fork_that_cannot_serve_is_told_with_its_reason(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import restless
        from carril import train

        restless.provoke()
        print("now")
        result = train.DataParallelTrainer(lambda: 3, run_config=train.RunConfig(name="plain", verbose=2)).fit()
        print(f"returned={result.return_value}")
        """,
        **plainly(scripts),
    )
    assert values(output)["returned"] == "3"
    # Before there were threads, the fork served.
    assert PLAIN not in output.partition("now")[0]
    assert re.search(r"started plainly: \d+ threads run, \d+ after the imports: a fork would lose them", output)
    journal = "".join(path.read_text() for path in (scripts.storage / "plain" / "journal").iterdir())
    assert "started plainly" in journal


def test_threads_that_an_import_leaves_do_not_forbid_the_fork(scripts: Scripts) -> None:
    """As numpy's do: they are there right after the import, and the fork can do without them."""
    found = install(
        scripts, "busy", "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    output = scripts.run(
        """
        import busy
        from carril import train

        print(f"returned={train.DataParallelTrainer(lambda: 4, run_config=train.RunConfig(verbose=2)).fit().return_value}")
        """,
        **found,
    )
    assert values(output)["returned"] == "4"
    assert PLAIN not in output


def test_installed_packages_are_imported_once_and_the_users_files_never_in_the_zygote(scripts: Scripts) -> None:
    package = scripts.directory / "site-packages" / "installed"
    package.mkdir(parents=True)
    noting = "import os, sys\nopen('{log}', 'a').write(f'{{__name__}} {{os.getpid()}}\\n')\n"
    log = scripts.directory / "imports.txt"
    (package / "__init__.py").write_text(noting.format(log=log))
    (package / "part.py").write_text(noting.format(log=log))
    scripts.write(noting.format(log=log), "helper.py")
    scripts.write(noting.format(log=log), "tensors/__init__.py")
    output = scripts.run(
        """
        import os
        import helper, tensors, installed
        import carril
        from carril import train

        carril.init()
        import installed.part

        def loop():
            import sys
            print(f"pid={os.getpid()}", flush=True)
            print(f"there={'installed.part' in sys.modules}", flush=True)
            helper, tensors, installed.part

        print(f"driver={os.getpid()}")
        trainer = train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2))
        trainer.fit()
        """,
        PYTHONPATH=str(package.parent),
    )
    found = values(output)
    assert (found["there0"], found["there1"]) == ("True", "True")
    imports = [line.split() for line in log.read_text().splitlines()]
    by_module = {name: [pid for module, pid in imports if module == name] for name, _ in imports}
    # The user's: in the driver and in each worker that needs it.
    assert set(by_module["helper"]) == {found["driver"], found["pid0"], found["pid1"]}
    assert set(by_module["tensors"]) == {found["driver"], found["pid0"], found["pid1"]}
    # Installed ones: in the driver and in the one process that workers are forked from.
    assert len(by_module["installed"]) == len(by_module["installed.part"]) == 2
    assert not {found["pid0"], found["pid1"]} & set(by_module["installed"])


def test_a_file_of_the_users_with_the_name_of_a_package_is_the_users(scripts: Scripts) -> None:
    scripts.write("WHO = 'the user'\nprint('imported by', __import__('sys').orig_argv, flush=True)\n", "numpy.py")
    output = scripts.run("""
        import numpy
        from carril import train

        print(f"who={train.DataParallelTrainer(lambda: numpy.WHO).fit().return_value}")
    """)
    assert values(output)["who"] == "the user"
    assert "carril._internal.zygote" not in "".join(re.findall(r"^imported by.*$", output, re.MULTILINE))


def test_an_installed_package_that_cannot_be_imported_ahead_does_no_harm(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import awkward
        from carril import train

        print(f"returned={train.DataParallelTrainer(lambda: awkward.__name__).fit().return_value}")
        """,
        **install(scripts, "awkward", IN_THE_ZYGOTE + "    sys.exit('not here')\n"),
    )
    assert values(output)["returned"] == "awkward"


def test_a_package_that_kills_the_zygote_costs_the_fork_and_not_the_run(scripts: Scripts) -> None:
    output = scripts.run(
        """
        import deadly
        from carril import train

        trainer = train.DataParallelTrainer(lambda: 6, run_config=train.RunConfig(verbose=2))
        print(f"returned={trainer.fit().return_value}")
        """,
        **install(scripts, "deadly", IN_THE_ZYGOTE + "    os._exit(9)\n"),
    )
    assert values(output)["returned"] == "6"
    assert "started plainly: the zygote" in output


RANDOM = """
    import random
    import numpy, torch
    from carril import train

    def loop():
        numbers = [random.random(), float(numpy.random.rand()), float(torch.rand(()))]
        print(f"numbers={numbers}", flush=True)

    if __name__ == "__main__":
        for _ in range(2):
            train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2)).fit()
"""


def test_no_two_workers_draw_the_same_random_numbers(scripts: Scripts) -> None:
    output = scripts.run(RANDOM)
    drawn = [json.loads(text) for text in re.findall(r"numbers=(.*)", output)]
    assert len(drawn) == 4
    for generator in zip(*drawn, strict=True):
        assert len(set(generator)) == 4, generator


def test_a_function_with_fifty_megabytes_of_globals_reaches_every_worker(scripts: Scripts) -> None:
    output = scripts.run("""
        import hashlib, os
        from carril import train

        table = os.urandom(50_000_000)

        def loop():
            print(f"hash={hashlib.sha256(table).hexdigest()}", flush=True)

        print(f"hash={hashlib.sha256(table).hexdigest()}")
        trainer = train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2))
        trainer.fit()
    """)
    found = values(output)
    assert found["hash"] == found["hash0"] == found["hash1"]


def test_functions_and_classes_of_the_script_are_found_by_name_in_workers(scripts: Scripts) -> None:
    """Where pickle and multiprocessing look for them: in `__main__`."""
    output = scripts.run("""
        import pickle
        from carril import train

        class Model:
            pass

        def loop():
            model = pickle.loads(pickle.dumps(Model()))
            return type(model) is Model

        if __name__ == "__main__":
            print(f"same={train.DataParallelTrainer(loop).fit().return_value}")
    """)
    assert values(output)["same"] == "True"


def test_a_script_without_a_file_can_train(scripts: Scripts) -> None:
    source = "from carril import train; print('got', train.DataParallelTrainer(lambda: 8).fit().return_value)"
    for command in ((sys.executable, "-c", source), ("sh", "-c", f'echo "{source}" | {sys.executable}')):
        script = scripts.start_command(*command)
        assert script.finish() == 0, script.output
        assert "got 8" in script.output


def test_a_script_run_as_a_module_can_train(scripts: Scripts) -> None:
    scripts.write("VALUE = 21\n", "package/part.py")
    scripts.write("", "package/__init__.py")
    scripts.write(
        """
        from carril import train
        from . import part

        def loop():
            return part.VALUE * 2

        if __name__ == "__main__":
            print("got", train.DataParallelTrainer(loop).fit().return_value)
        """,
        "package/__main__.py",
    )
    script = scripts.start_command(sys.executable, "-m", "package")
    assert script.finish() == 0, script.output
    assert "got 42" in script.output


def test_a_directory_that_is_gone_is_told_and_not_a_hang(scripts: Scripts) -> None:
    script = scripts.start("""
        import os, shutil, tempfile
        from carril import train

        gone = tempfile.mkdtemp()
        os.chdir(gone)
        shutil.rmtree(gone)
        train.DataParallelTrainer(lambda: None, run_config=train.RunConfig(storage_path="/tmp/nowhere")).fit()
    """)
    assert script.finish() == 1
    assert "directory" in script.output.splitlines()[-1] or "directory" in script.output
    assert not Path("/tmp/nowhere").exists()
