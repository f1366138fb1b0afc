"""What workers print: shown by the driver with the rank in front, kept whole in a file per rank."""

import re

import pytest
from driver_scripts import Scripts, scripts_fixture  # noqa: F401

LINES = """
    import os, subprocess, sys
    import carril
    from carril import train

    def loop(config):
        {body}

    if __name__ == "__main__":
        {init}
        trainer = train.DataParallelTrainer(
            loop,
            train_loop_config={{}},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="talk"),
        )
        try:
            trainer.fit()
        except carril.exceptions.WorkerGroupError:
            print("failed", flush=True)
"""


def run(scripts: Scripts, body: str, init: str = "pass") -> str:
    return scripts.run(LINES.format(body=body, init=init))


def shown(output: str, rank: int) -> list[str]:
    return re.findall(rf"^\(rank {rank}\) (.*)$", output, re.MULTILINE)


def kept(scripts: Scripts, rank: int) -> str:
    return (scripts.storage / "talk" / "ranks" / f"rank_{rank}.attempt_0.log").read_text(errors="replace")


def test_every_line_has_its_rank_in_front(scripts: Scripts) -> None:
    output = run(
        scripts,
        "print('out'); print('err', file=sys.stderr); subprocess.run(['echo', 'from a child']); os.write(1, b'raw\\n')",
    )
    for rank in (0, 1):
        assert sorted(shown(output, rank)) == ["err", "from a child", "out", "raw"]
    assert len(re.findall(r"^\(rank", output, re.MULTILINE)) == 8


def test_output_comes_before_fit_returns_and_in_order(scripts: Scripts) -> None:
    output = run(scripts, "for number in range(5000): print(number)")
    for rank in (0, 1):
        assert shown(output, rank) == [str(number) for number in range(5000)]


@pytest.mark.parametrize("ending", ["\\n", ""])
@pytest.mark.parametrize("size", [70_000, 3_000_000])
def test_a_line_of_any_length_is_shown_whole(scripts: Scripts, size: int, ending: str) -> None:
    output = run(scripts, f"sys.stdout.write('a' * {size} + 'z{ending}')")
    for rank in (0, 1):
        assert "".join(shown(output, rank)) == "a" * size + "z"
        assert kept(scripts, rank).rstrip("\n") == "a" * size + "z"


def test_a_last_line_without_an_end_is_shown(scripts: Scripts) -> None:
    output = run(scripts, "sys.stdout.write('no newline')")
    assert shown(output, 0) == shown(output, 1) == ["no newline"]


def test_what_was_printed_before_a_crash_is_shown(scripts: Scripts) -> None:
    output = run(scripts, "print('before'); os.kill(os.getpid(), 11)")
    assert "before" in shown(output, 0) + shown(output, 1)
    assert "failed" in output


def test_bytes_that_are_no_text_are_shown_and_end_nothing(scripts: Scripts) -> None:
    output = run(scripts, "os.write(1, b'caf\\xe9 \\xff\\n'); print('\\udc80 lone'); print('fin')")
    for rank in (0, 1):
        lines = shown(output, rank)
        assert lines[0].startswith("caf")
        assert lines[-1] == "fin"


def test_a_progress_bar_is_shown_as_its_last_state(scripts: Scripts) -> None:
    output = run(scripts, "sys.stdout.write('10%\\r50%\\r100%\\n')")
    assert shown(output, 0) == ["100%"]
    assert "10%\r50%" in (scripts.storage / "talk" / "ranks" / "rank_0.attempt_0.log").read_bytes().decode()


def test_large_output_is_kept_whole_and_shown_to_its_end(scripts: Scripts) -> None:
    output = run(scripts, "for number in range(100_000): print(f'{number:06d} ' + 'x' * 60)\n        print('the end')")
    for rank in (0, 1):
        lines = kept(scripts, rank).splitlines()
        assert len(lines) == 100_001
        assert lines[-2].startswith("099999 ")
        seen = shown(output, rank)
        # A driver that cannot keep up learns how much it has missed; what it shows is never cut.
        assert seen[-1] == "the end" or "were not shown" in output
        assert all(re.fullmatch(r"\d{6} x{60}|the end", line) for line in seen)


def test_a_driver_that_wants_no_output_gets_none_and_the_files_have_it(scripts: Scripts) -> None:
    output = run(scripts, "print('quiet')", init="carril.init(log_to_driver=False)")
    assert "quiet" not in output
    assert kept(scripts, 0) == kept(scripts, 1) == "quiet\n"


def test_output_is_shown_while_the_function_runs(scripts: Scripts) -> None:
    script = scripts.start(
        LINES.format(
            body="print('up'); import time\n        while not os.path.exists('seen'): time.sleep(0.01)", init="pass"
        )
    )
    script.wait_for("up", times=2)
    (scripts.directory / "seen").touch()
    assert script.finish() == 0, script.output
