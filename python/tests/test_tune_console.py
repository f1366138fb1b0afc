"""What an experiment shows: in place on a terminal, now and then in a log, in a cell of a notebook."""

import inspect
import math
import re
import time
from typing import Any

import pytest
from driver_scripts import Scripts, scripts_fixture, wait_until  # noqa: F401
from terminals import Terminal, Terminals, terminals_fixture  # noqa: F401
from test_notebook import Notebook, notebook_fixture  # noqa: F401

from carril.exceptions import ConfigError, ConfigTypeError
from carril.tune import _console
from carril.tune._console import Summary, TrialView, TuneConsole
from carril.tune._console_table import TableOptions, lines_of, table_of
from carril.tune._console_trials import Trials
from carril.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter


def view(
    number: int, status: str, loss: float | None = None, iterations: int = 1, reason: str = "", **config: Any
) -> TrialView:
    """A trial of which everything follows from its number."""
    name = f"train_3f2a1_{number:05}"
    given = {"lr": number / 10, "net": {"act": ("relu", "tanh")[number % 2]}, "epochs": 10, **config}
    metrics = None if loss is None else {"loss": loss, "eval": {"f1": 0.5}, "training_iteration": iterations, "pid": 7}
    reached = 0 if loss is None else iterations
    return TrialView(
        number, name[6:], name, status, given, metrics, reached, 2.0 * reached, reason, f"{name}_{number}_x"
    )


# The same in scripts and in cells.
VIEWS = "\n".join(
    [
        "from typing import Any",
        "from carril.tune._console import Summary, TrialView, TuneConsole",
        inspect.getsource(view),
    ]
)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def console(total: int | None = None, **options: Any) -> TuneConsole:
    return TuneConsole("search", "/results/search", "loss", "min", total=total, **options)


def test_a_log_has_a_table_at_the_end_and_what_to_type_next(capsys: pytest.CaptureFixture[str]) -> None:
    shows = console(total=4)
    shows.trial(view(0, "running"))
    shows.trial(view(0, "terminated", 0.5, 3))
    shows.trial(view(1, "terminated", 0.25, 12))
    shows.trial(view(2, "terminated", 0.75))
    shows.trial(view(3, "pending", reason="asks for 1 GPU"))
    assert shown(capsys) == [], "a table comes every 30 s at most"
    shows.finished(Summary("stopped", 7.25, "the time is up"))
    assert shown(capsys) == [
        "carril: `search` stopped: 3 of 4 trials done, 1 pending in 7.2 s: the time is up",
        "  trial              state        lr  net/act  reports  time  loss  eval/f1",
        "  train_3f2a1_00001  terminated  0.1     tanh       12  0:24  0.25      0.5",
        "  train_3f2a1_00000  terminated    0     relu        3  0:06   0.5      0.5",
        "  train_3f2a1_00002  terminated  0.2     relu        1  0:02  0.75      0.5",
        "  train_3f2a1_00003  pending     asks for 1 GPU",
        "  best        loss 0.25 · train_3f2a1_00001 · report 12 · lr 0.1 · net/act tanh",
        "  files       /results/search",
        "  next        carril tune best /results/search",
        "              carril tune show /results/search",
        "              tensorboard --logdir /results/search",
        "  to go on    carril resume /results/search",
    ]


def test_a_log_has_a_table_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shows = console(reporter=CLIReporter(max_report_frequency=0))
    shows.resources({"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0})
    shows.trial(view(0, "running", 0.5))
    lines = shown(capsys)
    assert re.fullmatch(r"carril: 0 trials done · 1 running · 1/2 CPU, 0/1 GPU · 0:0\d", lines[0])
    assert lines[1:] == [
        "  best: loss 0.5 · train_3f2a1_00000 · report 1",
        "  trial              state    reports  time  loss  eval/f1",
        "  train_3f2a1_00000  running        1  0:02   0.5      0.5",
    ]
    shows.tick()
    assert shown(capsys) == [], "nothing has changed"
    now = time.monotonic()
    seldom = console()
    seldom.trial(view(0, "running", 0.5))
    monkeypatch.setattr(time, "monotonic", lambda: now + 31)
    seldom.tick()
    assert len(shown(capsys)) == 4
    seldom.trial(view(0, "running", 0.4, 2))
    assert shown(capsys) == []


def test_only_parameters_that_vary_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    trials = Trials("loss", "min")
    first = TrialView(0, "0", "a", "running", {"same": 1, "lr": 0.1, "gone": 1, "object": dict, "list": [1, 2]})
    trials.put(first)
    assert trials.parameters == []
    trials.put(TrialView(1, "1", "b", "running", {"same": 1, "lr": 0.1, "object": list, "list": [1, 2], "new": 1}))
    assert trials.parameters == ["gone", "object", "new"]
    # A trial that took over another's configuration.
    trials.put(TrialView(0, "0", "a", "running", {**first.config, "lr": 0.2, "list": [1, 3]}))
    assert trials.parameters == ["lr", "gone", "object", "list", "new"]
    lines = lines_of(table_of(trials, TableOptions(), 20, None), 200)
    assert [line.split() for line in lines] == [
        ["trial", "state", "lr", "gone", "object", "list", "new", "reports", "time", "loss"],
        ["a", "running", "0.2", "1", "dict", "[1,", "3]"],
        ["b", "running", "0.1", "list", "[1,", "2]", "1"],
    ]


def test_what_runs_is_first_then_a_few_that_wait_then_the_best() -> None:
    trials = Trials("loss", "min")
    for number in range(30):
        trials.put(view(number, "terminated", 1 / (number + 1)))
    for number in range(30, 34):
        trials.put(view(number, "running", 5.0 if number % 2 else None))
    for number in range(34, 60):
        trials.put(view(number, "pending"))
    trials.put(view(60, "paused", 0.001))
    assert [trial.number for trial in trials.shown(10)] == [30, 31, 32, 33, 34, 35, 60, 29, 28, 27]
    assert [trial.number for trial in trials.shown(4)] == [30, 31, 32, 34], "one that waits is always there"
    assert [trial.number for trial in trials.shown(3, by_metric=True)] == [60, 29, 28]
    counts = {state: count for state, count in trials.counts.items() if count}
    assert counts == {"running": 4, "paused": 1, "pending": 26, "terminated": 30}
    assert len(trials) == 61 and trials.get(60) == view(60, "paused", 0.001)


def test_the_best_is_the_best_last_result_whatever_comes() -> None:
    trials = Trials("loss", "max")

    def after(number: int, status: str, loss: float | None) -> int | None:
        trials.put(view(number, status, loss))
        best = trials.best()
        return None if best is None else best.number

    assert after(0, "running", None) is None
    assert after(0, "running", 0.5) == 0
    assert after(1, "running", 0.75) == 1
    assert after(1, "running", 0.25) == 0, "it was better once"
    assert after(2, "running", float("nan")) == 0
    assert after(2, "terminated", 0.6) == 2
    assert after(0, "running", float("nan")) == 2
    assert after(2, "running", 0.1) == 1, "a trial that is run again starts over"
    assert [trial.number for trial in trials.shown(5, by_metric=True)][:2] == [1, 2]


def test_ranks_are_those_of_a_sort_after_any_changes() -> None:
    import random

    chance, trials, last = random.Random(7), Trials("loss", "min"), dict[int, float]()
    for _ in range(3000):
        number = chance.randrange(100)
        last[number] = chance.choice([0.0, 0.5, float("nan"), float("inf"), chance.random()])
        trials.put(view(number, chance.choice(["running", "paused", "terminated"]), last[number]))
    expected = sorted((loss, number) for number, loss in last.items() if math.isfinite(loss))
    ranked = [trial.number for trial in trials.shown(len(expected), by_metric=True)]
    assert ranked == [number for _, number in expected]
    assert sum(trials.counts.values()) == len(trials) == len(last)


def test_a_value_that_is_not_finite_is_never_the_best_and_a_report_may_lack_it() -> None:
    trials = Trials("loss", "min")
    trials.put(view(0, "running", 0.5))
    trials.put(view(1, "running", float("-inf")))
    trials.put(view(2, "running", float("nan")))
    assert [trial.number for trial in [trials.best()] if trial is not None] == [0]
    lacking = view(0, "running", 0.5)._replace(metrics={"other": 1, "training_iteration": 2}, iterations=2)
    trials.put(lacking)
    best = trials.best()
    assert best is not None and best.number == 0 and best.metrics is not None and best.metrics["loss"] == 0.5


def test_a_trial_that_was_stopped_early_looks_different(capsys: pytest.CaptureFixture[str]) -> None:
    shows = console(total=3)
    shows.trial(view(0, "terminated", 0.5, 9))
    shows.trial(view(1, "stopped", 0.7, 3))
    shows.trial(view(2, "unfinished", 0.9, 1))
    shows.finished(Summary("stopped", 7.25, "enough"))
    lines = shown(capsys)
    assert lines[0] == "carril: `search` stopped: 2 of 3 trials done, 1 stopped, 1 unfinished in 7.2 s: enough"
    assert [line.split()[1] for line in lines[2:5]] == ["terminated", "stopped", "unfinished"]


def test_the_prefix_that_all_parameters_share_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    shows = console()
    for number in range(2):
        config = {"train_loop_config": {"lr": number, "opt": {"name": f"o{number}"}, "epochs": 3}}
        shows.trial(view(number, "terminated", number + 1.0)._replace(config=config))
    shows.finished(Summary("finished", 1.0))
    lines = shown(capsys)
    assert lines[1].split()[:4] == ["trial", "state", "lr", "opt/name"]
    assert lines[4] == "  best        loss 1 · train_3f2a1_00000 · report 1 · lr 0 · opt/name o0"


def test_what_is_left_follows_from_the_median_and_from_what_runs() -> None:
    shows = TuneConsole("search", "/results/search", "loss", "min", total=10, longest=20, verbose=0)
    seen = shows._view
    seen.trials.put(view(0, "running", 0.5, 5))
    assert seen.remaining() == (40 - 10) + 9 * 40, "none has ended: 5 of 20 reports took 10 s"
    for number, iterations in ((1, 10), (2, 15), (3, 20)):
        seen.trials.put(view(number, "terminated", 0.5, iterations))
    seen.trials.put(view(4, "running", 0.5, 10))
    assert seen.trials.median_seconds == 30
    assert seen.remaining() == ((30 - 10) + (30 - 20) + 5 * 30) / 2
    assert seen.facts()[-2:] == ["about 1:30 left", "median 30.0 s a trial"]
    seen.total = None
    assert seen.remaining() is None and seen.facts()[-2].endswith("trials"), "there is no end, and there is a rate"
    seen.state = "finished"
    assert seen.facts() == ["3 trials done", "2 running"]


def test_trials_that_ended_before_this_start_count(capsys: pytest.CaptureFixture[str]) -> None:
    shows = console(total=4)
    shows.known([view(0, "terminated", 0.1), view(1, "error", 0.9)])
    shows.trial(view(2, "running", 0.5))
    assert shows._view.facts()[:3] == ["2 of 4 trials done", "1 running", "1 error"]
    assert "loss 0.1" in shows._view.best()
    shows.settled([view(number, "terminated", 0.4 - number / 10) for number in range(4)])
    shows.finished(Summary("finished", 1.0))
    lines = shown(capsys)
    assert lines[0] == "carril: `search` finished: 4 of 4 trials done in 1.0 s"
    assert lines[6].startswith("  best        loss 0.1 · train_3f2a1_00003")


def test_without_a_metric_the_last_to_end_are_shown() -> None:
    trials = Trials(None, None)
    for number in range(50):
        trials.put(view(number, "terminated", 1.0))
    assert [trial.number for trial in trials.shown(3)] == [49, 48, 47] and trials.best() is None
    assert table_of(trials, TableOptions(), 20, None).columns[-1].title == "eval/f1"


def test_drawing_costs_the_same_for_ten_thousand_trials() -> None:
    def cost(count: int) -> float:
        shows = console(total=count, reporter=CLIReporter(max_report_frequency=100_000))
        for number in range(count):
            shows.trial(view(number, "terminated", 1 / (number + 1)))
        for number in range(count, count + 8):
            shows.trial(view(number, "running", 0.5))
        took = []
        for _ in range(20):
            began = time.process_time()
            shows._view._lines(120, 40, True)
            took.append(time.process_time() - began)
        return min(took)

    few, many = cost(20), cost(10_000)
    assert many < 2 * few + 0.001, (few, many)


def test_a_failure_is_told_at_once_and_only_the_first_ones(capsys: pytest.CaptureFixture[str]) -> None:
    shows = console(reporter=CLIReporter(max_error_rows=2, max_report_frequency=1000))
    for number in range(5):
        failed = view(number, "error", 0.5, 3)
        shows.trial(failed)
        shows.error(failed, "KeyError: 'x'\nat script.py:10", "Traceback\n  a line")
    assert shown(capsys) == [
        "carril: trial `train_3f2a1_00000` failed after 3 reports in 6.0 s: KeyError: 'x' at script.py:10",
        "  error       /results/search/train_3f2a1_00000_0_x/error.txt",
        "carril: trial `train_3f2a1_00001` failed after 3 reports in 6.0 s: KeyError: 'x' at script.py:10",
        "  error       /results/search/train_3f2a1_00001_1_x/error.txt",
        "carril: more trials fail, which are not told one by one: `carril tune show /results/search` lists them",
    ]
    shows.finished(Summary("finished", 1.0))
    lines = shown(capsys)
    assert lines[0] == "carril: `search` finished: 5 trials done, 5 error in 1.0 s"
    at = lines.index("  errors      /results/search/train_3f2a1_00000_0_x/error.txt")
    assert lines[at + 2 : at + 4] == [
        "              /results/search/train_3f2a1_00002_2_x/error.txt",
        "              … and 2 more",
    ]
    assert not [line for line in lines if line.startswith("  to go on")]


def test_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(verbose: int, **options: Any) -> list[str]:
        shows = console(verbose=verbose, **options)
        shows.trial(view(0, "pending", reason="asks for 2 CPU"))
        shows.trial(view(0, "running"))
        shows.trial(view(0, "running", 0.5))
        shows.trial(view(0, "terminated", 0.5, reason="it returned"))
        shows.output("train_3f2a1_00000", b"printed\n")
        shows.warning("beware")
        shows.error(view(1, "error"), "KeyError: 'x'", "Traceback\n  a line\n")
        shows.interrupted(1)
        shows.interrupted(2)
        shows.finished(Summary("finished", 1.0))
        return shown(capsys)

    assert tell(0) == []
    assert tell(0, keeps_output=True) == ["(train_3f2a1_00000) printed"]
    talks = [
        "(train_3f2a1_00000) printed",
        "carril: warning: beware",
        "carril: trial `train_3f2a1_00001` failed after 0 reports in 0.0 s: KeyError: 'x'",
        "  error       /results/search/train_3f2a1_00001_1_x/error.txt",
        "carril: interrupted: stopping the experiment; Ctrl-C again ends it at once",
        "carril: interrupted: stopping the experiment, at once",
    ]
    assert tell(1)[: len(talks)] == talks
    assert tell(2)[: len(talks) + 6] == [
        "carril: train_3f2a1_00000: pending: asks for 2 CPU",
        "carril: train_3f2a1_00000: running",
        "carril: train_3f2a1_00000: report 1 · loss 0.5 · eval/f1 0.5 · 2.0 s",
        "carril: train_3f2a1_00000: terminated: it returned",
        *talks[:4],
        "  Traceback",
        "    a line",
        *talks[4:],
    ]


def test_what_trials_print_has_their_name_and_comes_whole(capsys: pytest.CaptureFixture[str]) -> None:
    shows = console()
    shows.output("a", b"one\ntwo\n")
    shows.output("b", b"\r10%\r20%")
    shows.output("b", b"\r30%")
    shows.output("c", b"\r50%")
    assert shown(capsys) == ["(a) one", "(a) two", "(b) 20%", "(c) 50%"], "a bar is a line now and then"
    shows.trial(TrialView(1, "1", "b", "terminated", {}))
    assert shown(capsys) == ["(b) 30%"], "its last state comes with the end of the trial"
    shows.close()
    shows.close()
    assert shown(capsys) == ["(c) 50%"]


def test_columns_that_are_always_there_have_the_titles_that_a_reporter_gives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reporter = CLIReporter(metric_columns={"training_iteration": "it", "time_total_s": "t"}, max_report_frequency=0)
    shows = console(reporter=reporter)
    shows.trial(view(0, "terminated", 1.0))
    shows.finished(Summary("finished", 1.0))
    titles = next(line.split() for line in shown(capsys) if line.startswith("  trial"))
    assert titles[-2:] == ["it", "t"] and "reports" not in titles


def test_a_reporter_says_what_the_table_shows(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = CLIReporter(
        metric_columns={"eval/f1": "F1", "pid": "process"},
        parameter_columns=["epochs"],
        max_progress_rows=2,
        metric="eval/f1",
        mode="max",
        sort_by_metric=True,
        print_intermediate_tables=False,
        max_report_frequency=0,
        total_samples=9,
        max_column_length=6,
    )
    reporter.add_parameter_column("net/act", "activation")
    shows = console(reporter=reporter)
    for number in range(3):
        ended = view(number, "terminated", 1.0)
        shows.trial(
            TrialView(number, ended.id, ended.name, "terminated", ended.config, {"eval": {"f1": number}, "pid": 7})
        )
    assert shown(capsys) == [], "no tables in between were wanted"
    shows.finished(Summary("finished", 1.0))
    lines = shown(capsys)
    assert lines[0].startswith("carril: `search` finished: 3 of 9 trials done in")
    assert [line.split() for line in lines[1:5]] == [
        ["trial", "state", "epochs", "activ…", "reports"[:5] + "…", "time", "F1", "proce…"],
        ["train_3f2a1_00002", "terminated", "10", "relu", "2", "7"],
        ["train_3f2a1_00001", "terminated", "10", "tanh", "1", "7"],
        ["…", "1", "more", "trial"],
    ]
    assert "eval/f1 2 · train_3f2a1_00002" in lines[5]


def test_a_reporter_of_the_user_s_own_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnTermination(CLIReporter):
        terminated = 0

        def should_report(self, trials: Any, done: bool = False) -> bool:
            before, self.terminated = self.terminated, len([t for t in trials if t.status == "TERMINATED"])
            return done or self.terminated > before

    class Own(ProgressReporter):
        def report(self, trials: Any, done: bool, *sys_info: str) -> None:
            print(done, [(trial.trial_id, trial.status, trial.last_result, trial.config["lr"]) for trial in trials])

    monkeypatch.setattr(_console, "_SECONDS_BETWEEN_QUESTIONS", 0.0)
    shows = console(reporter=OnTermination())
    shows.trial(view(0, "running", 0.5))
    assert shown(capsys) == []
    shows.trial(view(0, "terminated", 0.5))
    assert shown(capsys) == [
        "trials: 1 (1 TERMINATED)",
        "  trial              state       reports  time  loss  eval/f1",
        "  train_3f2a1_00000  terminated        1  0:02   0.5      0.5",
    ]
    own = console(reporter=Own())
    own.trial(view(3, "running"))
    assert shown(capsys) == ["False [('3f2a1_00003', 'RUNNING', {}, 0.3)]"]
    own.finished(Summary("finished", 1.0))
    lines = shown(capsys)
    assert lines[0] == "True [('3f2a1_00003', 'RUNNING', {}, 0.3)]" and "  files       /results/search" in lines


def test_reporters_refuse_what_they_cannot_use() -> None:
    with pytest.raises(ConfigError, match="`mode` is 'best': it must be 'min' or 'max'"):
        CLIReporter(mode="best")
    with pytest.raises(ConfigTypeError, match="`metric_columns` is a str: it must be a list of names"):
        CLIReporter(metric_columns="loss")
    with pytest.raises(ConfigError, match="`max_column_length` is 0: it is too small"):
        CLIReporter(max_column_length=0)
    with pytest.raises(ConfigTypeError, match="`max_report_frequency` is a str: it must be a number"):
        CLIReporter(max_report_frequency="often")  # type: ignore[arg-type]
    reporter = JupyterNotebookReporter(overwrite=True, metric_columns=["loss"])
    reporter.add_metric_column("f1", "F1")
    assert reporter.options.metric_columns == {"loss": "loss", "f1": "F1"}
    with pytest.raises(ConfigError, match="the metric `f1` has a column already"):
        reporter.add_metric_column("f1")


@pytest.mark.parametrize("width", range(10, 130, 7))
def test_no_line_is_wider_than_there_is_room(width: int) -> None:
    trials = Trials("loss", "min")
    for number in range(5):
        trials.put(view(number, "running", 0.5, 日本語="漢字" * number, long="x" * 90))
    trials.put(view(7, "pending", reason="漢字 waits for " * 9))
    from carril.train._console_text import width as width_of

    table = table_of(trials, TableOptions(), 20, width - 2)
    lines = lines_of(table, width)
    assert len(lines) == 7 and max(map(width_of, lines)) <= width
    whole = max(map(width_of, lines_of(table_of(trials, TableOptions(), 20, None), 1000)[:6]))
    assert (table.left_out == 0) == (width >= whole), [column.title for column in table.columns]
    coloured = [re.sub(r"\x1b\[\d*m", "", line) for line in lines_of(table, width, colour=True)]
    assert coloured == lines


# Each script goes on until the test has seen enough, which it says with a file.
SCRIPT = (
    "import os, time\n"
    + VIEWS
    + """
def wait(shows, file="seen"):
    while not os.path.exists(file):
        shows.tick()
        time.sleep(0.01)

shows = TuneConsole("search", os.path.expanduser("~/carril_results/search"), "loss", "min", total=40)
"""
)


def block(terminal: Terminal) -> list[str]:
    """The lines that stand in place."""
    lines = terminal.screen.splitlines()
    first = [at for at, line in enumerate(lines) if line.startswith("carril 0:")]
    assert len(first) == 1, terminal.screen
    return lines[first[0] :]


TABLE = """
for number in range(30):
    shows.trial(view(number, "running"))
    shows.trial(view(number, "terminated", 1 / (number + 1), 3))
for number in (30, 31):
    shows.trial(view(number, "running", 0.5 + number))
shows.trial(view(32, "pending", reason="asks for 1 CPU, free is 0 CPU: waits for train_3f2a1_00030"))
shows.resources({"CPU": 2.0}, {"CPU": 2.0})
wait(shows)
for number in range(30, 33):
    shows.trial(view(number, "terminated", 0.5 + number))
shows.finished(Summary("finished", 12.5))
"""


def test_on_a_terminal_the_trials_stand_in_place(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start(SCRIPT + TABLE)
    terminal.wait_for("2/2 CPU")
    head, facts, best, *table = block(terminal)
    assert re.fullmatch(r"carril 0:\d\d · running · 2/2 CPU · search", head)
    assert facts.startswith("  30 of 40 trials done · 2 running · 1 pending · about 0:")
    assert best == "  best: loss 0.03333 · train_3f2a1_00029 · report 3 · lr 2.9 · net/act tanh"
    assert [line.split()[:4] for line in table[:5]] == [
        ["trial", "state", "lr", "net/act"],
        ["train_3f2a1_00030", "running", "3", "relu"],
        ["train_3f2a1_00031", "running", "3.1", "tanh"],
        ["train_3f2a1_00032", "pending", "asks", "for"],
        ["train_3f2a1_00029", "terminated", "2.9", "tanh"],
    ]
    # 24 lines: four are left free above, and one is never drawn on.
    assert len(table) == 24 - 4 - 1 - 3 and table[-1] == "  … 19 more trials · no room for 1 column"
    (scripts.directory / "seen").touch()
    assert terminal.finish() == 0
    lines = terminal.everything.splitlines()
    assert "carril 0:" not in terminal.everything
    assert lines[0] == "carril: `search` finished: 33 of 40 trials done in 12.5 s"
    assert lines[2].split()[:2] == ["train_3f2a1_00029", "terminated"]
    assert lines[22] == "  … 13 more trials" and lines[23].startswith("  best        loss 0.03333 · train_3f2a1_00029")
    at = lines.index("  next        carril tune best search")
    assert lines[at + 1] == "              carril tune show search"


def test_a_terminal_of_another_size_gets_another_table(terminals: Terminals, scripts: Scripts) -> None:
    terminal = terminals.start(SCRIPT + TABLE, columns=120, lines=40)
    terminal.wait_for("2/2 CPU")
    terminal.wait_for("13 more trials")
    assert "eval/f1" in terminal.screen and len(block(terminal)) == 3 + 1 + 20 + 1
    terminal.resize(48, 14)
    terminal.wait_for("no room for")
    lines = block(terminal)
    assert len(lines) == 14 - 4 - 1 and all(len(line) < 48 for line in lines)
    assert lines[3].split() == ["trial", "state", "lr", "loss"], "what matters most has room"
    terminal.resize(48, 6)
    terminal.wait_for("done · 2 running")
    wait_until(lambda: terminal._pump(0.01) and len(block(terminal)) == 3, "three lines", lambda: terminal.screen)
    (scripts.directory / "seen").touch()
    assert terminal.finish() == 0


def test_lines_of_trials_and_failures_scroll_above_it(terminals: Terminals, scripts: Scripts) -> None:
    body = """
shows.trial(view(0, "running", 0.5))
for n in range(2000):
    shows.output("train_3f2a1_00000", f"line {n}\\n".encode())
shows.trial(view(1, "error", 0.25, 3))
shows.error(view(1, "error", 0.25, 3), "KeyError: 'x' at script.py:10", "")
wait(shows)
shows.interrupted(1)
shows.finished(Summary("stopped", 1.0, "interrupted"))
"""
    terminal = terminals.start(SCRIPT + body, columns=100)
    terminal.wait_for("1 error")
    terminal.wait_for("error.txt")
    assert len(block(terminal)) == 6
    (scripts.directory / "seen").touch()
    assert terminal.finish() == 0
    lines = terminal.everything.splitlines()
    assert lines[:2000] == [f"(train_3f2a1_00000) line {n}" for n in range(2000)]
    assert lines[2000] == (
        "carril: trial `train_3f2a1_00001` failed after 3 reports in 6.0 s: KeyError: 'x' at script.py:10"
    )
    path = str(scripts.storage / "search" / "train_3f2a1_00001_1_x" / "error.txt")
    assert "".join(lines[2001:2004]).startswith(f"  error       {path}"), lines[2001:2004]
    assert "carril: interrupted: stopping the experiment; Ctrl-C again ends it at once" in lines
    assert lines[-1] == "  to go on    carril resume search"


def test_without_colour_there_is_none(terminals: Terminals, scripts: Scripts) -> None:
    coloured = terminals.start(SCRIPT + TABLE, columns=100)
    plain = terminals.start(SCRIPT + TABLE, columns=100, NO_COLOR="1")
    for terminal in (coloured, plain):
        terminal.wait_for("2/2 CPU")
    (scripts.directory / "seen").touch()
    assert coloured.finish() == plain.finish() == 0
    assert b"\x1b[32mrunning" in coloured.raw and b"\x1b[33mpending" in coloured.raw
    assert not re.search(rb"\x1b\[\d*m", plain.raw)


def test_a_notebook_has_one_output_with_the_table(notebook: Notebook) -> None:
    cell = notebook.run(
        VIEWS
        + """
shows = TuneConsole("search", "/results/search", "loss", "min", total=2)
shows.trial(view(0, "terminated", 0.5, note="<b>"))
shows.trial(view(1, "paused", 0.75, reason="others come first", note="c"))
shows.output("train_3f2a1_00000", b"printed\\n")
shows.finished(Summary("finished", 1.0))
"""
    )
    html = cell["text/html"]
    assert "<b>search</b> · <b style='color:#2a7'>finished</b>" in html and "1 of 2 trials done · 1 paused" in html
    assert "best: loss 0.5 · train_3f2a1_00000 · report 1 · lr 0 · net/act relu · note &lt;b&gt;" in html
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    assert rows == [
        ["trial", "state", "lr", "net/act", "note", "reports", "time", "loss", "eval/f1"],
        ["train_3f2a1_00000", "terminated", "0", "relu", "&lt;b&gt;", "1", "0:02", "0.5", "0.5"],
        ["train_3f2a1_00001", "paused: others come first", "0.1", "tanh", "c", "1", "0:02", "0.75", "0.5"],
    ]
    assert cell["text"].startswith("(train_3f2a1_00000) printed\ncarril: `search` finished: 1 of 2 trials done")
    assert "  trial " not in cell["text"], "the table stays in sight by itself"


def test_a_storage_that_only_the_script_can_read_has_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for path, commands in (("bucket/search", 0), ("s3://bucket/search", 2), ("/results/search", 3)):
        shows = TuneConsole("search", path, "loss", "min")
        shows.trial(view(0, "terminated", 0.5))
        shows.finished(Summary("finished", 1.0))
        lines = shown(capsys)
        assert f"  files       {path}" in lines
        assert len([line for line in lines if "carril tune" in line or "tensorboard" in line]) == commands


def test_the_counts_add_up_to_the_trials_at_any_moment() -> None:
    trials = Trials("loss", "min")
    trials.put(view(0, "pending"))
    before = trials.counts
    trials.put(view(0, "running"))
    # Whoever had begun to read sees the trial where it was, and not nowhere: TRIALS-3.
    assert (before["pending"], before["running"]) == (1, 0)
    assert (trials.counts["pending"], trials.counts["running"]) == (0, 1)
    for number, status in [(1, "paused"), (2, "terminated"), (3, "stopped"), (4, "error"), (5, "unfinished")]:
        trials.put(view(number, status))
        assert sum(trials.counts.values()) == len(trials)
