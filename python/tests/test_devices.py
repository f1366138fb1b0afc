"""Which worker sees which NVIDIA device, on a machine that has none: the device files are made up.

The script runs in a mount namespace of its own in which `/dev` has as many `nvidiaN` as the test wants. Nothing opens
them.
"""

import os
import re

import pytest
from driver_scripts import Scripts, scripts_fixture, values  # noqa: F401

WITH_DEVICES = """
    set -e
    dev=$(mktemp -d)
    mount -t tmpfs none "$dev"
    for name in null zero full random urandom; do touch "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
    mkdir "$dev/shm"; mount --bind /dev/shm "$dev/shm"
    ln -s /proc/self/fd "$dev/fd"
    touch "$dev/nvidiactl" "$dev/nvidia-uvm"
    for number in $1; do touch "$dev/nvidia$number"; done
    mount --bind "$dev" /dev
    rmdir "$dev" 2>/dev/null || true
    shift
    exec "$@"
"""

NAMESPACE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")

PLACED = """
    import os, sys
    import carril
    from carril import train

    def loop():
        print(f"visible={os.environ.get('CUDA_VISIBLE_DEVICES')}", flush=True)

    carril.init(num_cpus=8, num_gpus=eval(sys.argv[1]))
    print(f"gpus={carril.cluster_resources().get('GPU', 0.0)}")
    workers, share = eval(sys.argv[2]), eval(sys.argv[3])
    scaling = train.ScalingConfig(num_workers=workers, use_gpu=True, resources_per_worker={"GPU": share})
    try:
        train.DataParallelTrainer(loop, scaling_config=scaling).fit()
    except carril.exceptions.PlacementError as error:
        print(f"code={error.code}")
        print(error)
    print(f"left={carril.available_resources().get('GPU', 0.0)}")
"""


def run_with_devices(scripts: Scripts, devices: str, *arguments: str, **environment: str) -> str:
    shell = scripts.write(WITH_DEVICES, "with_devices.sh")
    return scripts.run(PLACED, *arguments, before=(*NAMESPACE, "sh", str(shell), devices), **environment)


def visible(output: str) -> list[str]:
    found = values(output)
    return [found[f"visible{rank}"] for rank in range(len(re.findall("visible=", output)))]


@pytest.mark.parametrize(
    ("workers", "share", "seen"),
    [
        ("2", "1", ["0", "1"]),
        ("4", "1", ["0", "1", "2", "3"]),
        ("2", "2", ["0,1", "2,3"]),
        ("1", "3", ["0,1,2"]),
        ("4", "0.5", ["0", "0", "1", "1"]),
    ],
)
def test_each_worker_sees_its_own_devices(scripts: Scripts, workers: str, share: str, seen: list[str]) -> None:
    output = run_with_devices(scripts, "0 1 2 3", "None", workers, share)
    assert visible(output) == seen
    assert (values(output)["gpus"], values(output)["left"]) == ("4.0", "4.0")


def test_the_variable_narrows_the_devices_and_gives_their_order(scripts: Scripts) -> None:
    output = run_with_devices(scripts, "0 1 2 3", "None", "2", "1", CUDA_VISIBLE_DEVICES="3,1")
    assert values(output)["gpus"] == "2.0"
    assert visible(output) == ["3", "1"]


@pytest.mark.parametrize("value", ["", "-1", "9"])
def test_a_variable_that_shows_no_device_leaves_none(scripts: Scripts, value: str) -> None:
    output = run_with_devices(scripts, "0 1", "None", "1", "1", CUDA_VISIBLE_DEVICES=value)
    assert values(output)["gpus"] == "0.0"
    assert values(output)["code"] == "placement-impossible"


def test_init_can_give_fewer_than_there_are(scripts: Scripts) -> None:
    output = run_with_devices(scripts, "0 1 2 3", "2", "2", "1")
    assert values(output)["gpus"] == "2.0"
    assert visible(output) == ["0", "1"]


def test_more_than_there_are_is_not_a_wait_without_end(scripts: Scripts) -> None:
    output = run_with_devices(scripts, "0", "2", "2", "1")
    assert visible(output) == ["0", "1"] or values(output)["code"] == "placement-impossible"
    assert "waiting" not in output


def test_shares_that_no_device_has_room_for_are_an_error_and_not_a_wait(scripts: Scripts) -> None:
    # 1.8 of 2 in all, but a share is never split between two devices.
    output = run_with_devices(scripts, "0 1", "None", "3", "0.6")
    assert values(output)["code"] == "placement-impossible"
    assert "waiting" not in output


def test_a_zygote_that_has_a_device_open_is_not_forked(scripts: Scripts) -> None:
    package = scripts.directory / "site-packages" / "opener"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys\nif 'carril._internal.zygote' in sys.orig_argv:\n    device = open('/dev/nvidia0')\n"
    )
    shell = scripts.write(WITH_DEVICES, "with_devices.sh")
    output = scripts.run(
        """
        import opener
        from carril import train

        trainer = train.DataParallelTrainer(lambda: 9, run_config=train.RunConfig(verbose=2))
        print(f"returned={trainer.fit().return_value}")
        """,
        before=(*NAMESPACE, "sh", str(shell), "0"),
        PYTHONPATH=str(package.parent),
    )
    assert values(output)["returned"] == "9"
    assert "started plainly: `/dev/nvidia0` is open: CUDA does not survive a fork" in output
