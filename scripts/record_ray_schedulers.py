"""Records what Ray's schedulers decide, for `crates/core/tests/tune_ray` to compare with ours.

Drives Ray's scheduler objects without a cluster, with stand-ins for trials and controller, over seeded random reports and over
short scripts where Ray is known to differ. Run it with a Python that has Ray: `python scripts/record_ray_schedulers.py`.

Scores and times are whole numbers, so that sums are exact and ties are common. An event is one of

    ["add", trial]                 the searcher has made it
    ["run", trial]                 the scheduler has chosen it
    ["report", trial, time, score, decision]
    ["end", trial, time, score]    it ended by itself, with this as its last report
    ["fail", trial]

HyperBand's reports and ends have the other trials that were stopped by them behind it; a report to PBT by which trials were
compared has the worst and the best.
"""

import collections
import itertools
import json
import logging
import random
import types
from pathlib import Path
from typing import Any

import ray
from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

FILE = Path(__file__).parent.parent / "crates/core/tests/data/ray_schedulers.json"
WORDS = {"CONTINUE": "go", "PAUSE": "pause", "STOP": "stop"}


class FakeTrial:
    """What Ray's schedulers use of a trial."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.trial_id = self.experiment_tag = str(number)
        self.status = Trial.PENDING
        self.config = {"x": 1.0}
        self.evaluated_params: dict[str, Any] = {}
        self.checkpoint = "saved"
        self.is_saving = False
        self.time = 0
        self.last_result: dict[str, Any] = {}
        self.temporary_state = types.SimpleNamespace(saving_to=None)
        checkpoints = types.SimpleNamespace(checkpoint_config=types.SimpleNamespace(num_to_keep=None))
        self.run_metadata = types.SimpleNamespace(checkpoint_manager=checkpoints)

    def is_finished(self) -> bool:
        return self.status in (Trial.ERROR, Trial.TERMINATED)

    def set_experiment_tag(self, tag: str) -> None:
        self.experiment_tag = tag

    def set_config(self, config: dict[str, Any]) -> None:
        self.config = config


class World:
    """Trials on some places, and the part of Ray's controller that its schedulers see."""

    search_alg = None

    def __init__(self, scheduler: Any, seed: int, slots: int, ends_are_told_twice: bool = True) -> None:
        self.scheduler = scheduler
        self.random = random.Random(seed)
        self.slots = slots
        self.ends_are_told_twice = ends_are_told_twice
        self.trials: list[FakeTrial] = []
        self.events: list[list[Any]] = []
        self.stopped: list[int] = []

    # What the schedulers call.

    def get_trials(self) -> list[FakeTrial]:
        return self.trials

    def get_live_trials(self) -> list[FakeTrial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def stop_trial(self, trial: FakeTrial) -> None:
        if trial.status in (Trial.PENDING, Trial.PAUSED):
            self.scheduler.on_trial_remove(self, trial)
            self.stopped.append(trial.number)
        elif trial.status == Trial.RUNNING:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        trial.status = Trial.TERMINATED

    def pause_trial(self, trial: FakeTrial, should_checkpoint: bool = True) -> None:
        trial.status = Trial.PAUSED

    def _schedule_trial_save(self, trial: FakeTrial, result: dict[str, Any]) -> str:
        return "saved"

    # What happens.

    def running(self) -> list[FakeTrial]:
        return [trial for trial in self.trials if trial.status == Trial.RUNNING]

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            trial = FakeTrial(len(self.trials))
            self.trials.append(trial)
            self.scheduler.on_trial_add(self, trial)
            self.events.append(["add", trial.number])

    def fill(self) -> None:
        while len(self.running()) < self.slots:
            trial = self.scheduler.choose_trial_to_run(self)
            if trial is None:
                return
            trial.status = Trial.RUNNING
            self.events.append(["run", trial.number])

    def report(self, trial: FakeTrial, time: int, score: int) -> list[Any]:
        """Ray's word is carried out, as its controller does it."""
        trial.time, trial.last_result = time, {"t": time, "score": score}
        self.stopped = []
        decision = self.scheduler.on_trial_result(self, trial, trial.last_result)
        event = ["report", trial.number, time, score, WORDS.get(decision, decision)]
        self.events.append(event)
        if decision == "STOP":
            if self.ends_are_told_twice:
                self.stop_trial(trial)
            trial.status = Trial.TERMINATED
        elif decision == "PAUSE":
            trial.status = Trial.PAUSED
        return event

    def end(self, trial: FakeTrial, time: int, score: int) -> None:
        trial.time, trial.last_result = time, {"t": time, "score": score}
        self.stopped = []
        self.stop_trial(trial)
        self.events.append(["end", trial.number, time, score])

    def fail(self, trial: FakeTrial) -> None:
        self.stopped = []
        self.scheduler.on_trial_error(self, trial)
        trial.status = Trial.ERROR
        self.events.append(["fail", trial.number])

    def some_run(self, trials: int, most: int, step: int) -> None:
        """Random trials report until all have ended, some of them by themselves."""
        qualities = [self.random.randint(0, 60) for _ in range(trials)]
        lengths = [self.random.randint(most // 2, most) for _ in range(trials)]
        while len(self.trials) < trials or self.get_live_trials():
            missing = trials - len(self.trials)
            if missing and (self.random.random() < 0.3 or not self.get_live_trials()):
                self.add(min(missing, self.random.randint(1, 3)))
            self.fill()
            trial = self.random.choice(self.running())
            time = trial.time + self.random.randint(1, step)
            score = qualities[trial.number] + time // 2 + self.random.randint(-15, 15)
            if self.random.random() < 0.004:
                self.fail(trial)
            elif time >= lengths[trial.number]:
                self.end(trial, time, score)
            else:
                self.report(trial, time, score)


def compact(world: World, scheduler: str, **options: Any) -> dict[str, Any]:
    """With whether all that live wait for ever."""
    stuck = bool(world.get_live_trials()) and not world.running()
    return {"scheduler": scheduler, "options": options, "events": world.events, "stuck": stuck}


def fifo() -> list[dict[str, Any]]:
    world = World(FIFOScheduler(), 1, slots=3)
    world.some_run(8, 6, 1)
    return [compact(world, "fifo")]


def asha() -> list[dict[str, Any]]:
    cases = []
    options = itertools.product(("max", "min"), (2, 3, 4, 2.5), (1, 4), (True, False))
    for seed, (mode, factor, grace, stop_last) in enumerate(options):
        # Past `max_t` we differ: without `stop_last_trials` no trial comes as far.
        given = {"mode": mode, "max_t": 20 if stop_last else 1000, "grace_period": grace}
        given |= {"reduction_factor": factor, "stop_last_trials": stop_last}
        world = World(AsyncHyperBandScheduler("t", "score", **given), seed, slots=4)
        # Nor does Ray leave a rung alone that was jumped over, with `stop_last_trials`.
        world.some_run(12, 28, step=1 if stop_last else 3)
        cases.append(compact(world, "asha", **given))
    return cases


def asha_rungs() -> list[dict[str, Any]]:
    made = []
    for max_t, grace, factor in [(100, 1, 4), (81, 1, 3), (243, 1, 3), (1000, 1, 10), (50, 4, 2), (64, 5, 2.5)]:
        brackets = AsyncHyperBandScheduler("t", "score", "max", max_t, grace, factor, brackets=3)._brackets
        rungs = [[float(milestone) for milestone, _ in reversed(bracket._rungs)] for bracket in brackets]
        made.append({"max_t": max_t, "grace_period": grace, "reduction_factor": factor, "rungs": rungs})
    return made


def median() -> list[dict[str, Any]]:
    cases = []
    options = itertools.product(("max", "min"), (1, 4), (1, 3), (0, 3))
    for seed, (mode, grace, samples, time_slice) in enumerate(options):
        given = {"mode": mode, "grace_period": grace, "min_samples_required": samples, "min_time_slice": time_slice}
        scheduler = MedianStoppingRule("t", "score", **given)
        # Ray takes its first slice as over before it began.
        scheduler._last_pause = collections.defaultdict(int)
        # Ray hears of the last report of a trial that it stopped once more, and counts it twice.
        world = World(scheduler, seed, slots=3, ends_are_told_twice=False)
        world.some_run(12, 16, step=1 + seed % 2)
        cases.append(compact(world, "median", **given))
    return cases


def rungs_of(scheduler: HyperBandScheduler, bracket: Any) -> list[list[float]]:
    """How many trials of a full bracket are trained for how long."""
    trials, time, rungs = bracket._n0, bracket._r0, []
    for _ in range(bracket._halves + 1):
        rungs.append([trials, time])
        trials, time = -int(-trials // bracket._eta), int(min(time * bracket._eta, scheduler._max_t_attr))
    return rungs


def band_of(max_t: int, factor: float, mode: str, stop_last: bool = True) -> tuple[HyperBandScheduler, list[Any]]:
    """A scheduler, and the plans of the brackets of its first band."""
    given = {"mode": mode, "max_t": max_t, "reduction_factor": factor, "stop_last_trials": stop_last}
    scheduler = HyperBandScheduler("t", "score", **given)
    halvings = [s for s in range(scheduler._s_max_1) if scheduler._get_r0(s) > 0]
    return scheduler, [rungs_of(scheduler, scheduler._create_bracket(s)) for s in halvings]


def hyperband_plans() -> list[dict[str, Any]]:
    sizes = [(81, 3), (243, 3), (27, 3), (8, 2), (16, 2), (64, 4), (100, 3), (200, 3), (50, 4)]
    return [
        {"max_t": max_t, "reduction_factor": factor, "brackets": band_of(max_t, factor, "max")[1]}
        for max_t, factor in sizes
    ]


def hyperband() -> list[dict[str, Any]]:
    cases = []
    for seed, (mode, (max_t, factor), step) in enumerate(
        itertools.product(("max", "min"), ((8, 2), (27, 3), (16, 4)), (1, 2))
    ):
        scheduler, plans = band_of(max_t, factor, mode)
        world = World(scheduler, seed, slots=4)
        world.add(sum(plan[0][0] for plan in plans))
        # Two milestones in one step would leave Ray's bracket waiting for ever.
        run_brackets(world, step if factor > 2 else 1)
        given = {"mode": mode, "max_t": max_t, "reduction_factor": factor}
        cases.append({**compact(world, "hyperband", **given), "brackets": brackets_of(scheduler)})
    return cases


def brackets_of(scheduler: HyperBandScheduler) -> list[list[int]]:
    return [[trial.number for trial in bracket._all_trials] for bracket in scheduler._hyperbands[0]]


def run_brackets(world: World, step: int) -> None:
    """Random trials report. One ends by itself only before its bracket was halved: later Ray does not look at it again."""
    while world.get_live_trials():
        world.fill()
        trial = world.random.choice(world.running())
        bracket, _ = world.scheduler._trial_info[trial]
        # No two scores are equal: Ray keeps the newer one of them, and we the older one.
        time, score = trial.time + world.random.randint(1, step), 60 * world.random.randint(0, 15) + trial.number
        is_to_be_halved = bracket._halves > 0 and not bracket.is_being_processed
        if is_to_be_halved and world.random.random() < 0.03:
            world.end(trial, time, score)
        else:
            world.report(trial, time, score)
        world.events[-1].append(sorted(world.stopped))


def pbt_scheduler(**given: Any) -> PopulationBasedTraining:
    mutations = {"x": [1.0, 2.0]}
    return PopulationBasedTraining("t", "score", hyperparam_mutations=mutations, log_config=False, **given)


def pbt_report(world: World, trial: FakeTrial, time: int, score: int, everyone_saves: bool = True) -> None:
    """As `report`, with what the trial goes on from: `[..., decision, worst, best]` where trials were compared."""
    compared: list[Any] = []
    scheduler = world.scheduler
    quantiles = PopulationBasedTraining._quantiles.__get__(scheduler)

    def watched() -> Any:
        lower, upper = quantiles()
        compared[:] = [[one.number for one in lower], [one.number for one in upper]]
        return lower, upper

    scheduler._quantiles = watched
    before = scheduler._num_perturbations
    if everyone_saves:
        for state in scheduler._trial_state.values():
            state.last_checkpoint = "saved"
        scheduler._checkpoint_or_exploit = types.MethodType(saving, scheduler)
    event = world.report(trial, time, score)
    if compared:
        event.extend(compared)
    if scheduler._num_perturbations > before:
        if trial.number in compared[0]:
            event[4] = "exploit"
        for number in compared[0]:
            world.trials[number].time = scheduler._trial_state[world.trials[number]].last_train_time


def saving(scheduler: Any, trial: Any, *rest: Any) -> None:
    """Ray skips who was not among the best when it last reported. Here everybody has a checkpoint."""
    PopulationBasedTraining._checkpoint_or_exploit(scheduler, trial, *rest)
    for state in scheduler._trial_state.values():
        state.last_checkpoint = "saved"


def pbt() -> list[dict[str, Any]]:
    """One trial at a time is the best and is copied, so that the choice among the best is no choice."""
    cases = []
    options = itertools.product(("max", "min"), ((4, 0.25), (8, 0.125), (5, 0.2)), (0, 7), (3, 20))
    for seed, (mode, (trials, fraction), burn_in, slots) in enumerate(options):
        given = {"mode": mode, "perturbation_interval": 3, "burn_in_period": burn_in, "quantile_fraction": fraction}
        world = World(pbt_scheduler(**given), seed, slots)
        world.add(trials)
        for _ in range(60):
            world.fill()
            trial = world.random.choice(world.running())
            time, score = trial.time + world.random.randint(1, 2), world.random.randint(0, 40)
            if world.random.random() < 0.01:
                world.end(trial, time, score)
            else:
                pbt_report(world, trial, time, score)
            if not world.get_live_trials():
                break
        cases.append(compact(world, "pbt", **given, synch=False))
    return cases


def pbt_rounds() -> list[dict[str, Any]]:
    """Several are the best, and all of them have come as far: whoever is copied, what follows is the same."""
    cases = []
    for seed, (mode, fraction) in enumerate(itertools.product(("max", "min"), (0.25, 0.4, 0.5))):
        sign = 1 if mode == "max" else -1
        given = {"mode": mode, "perturbation_interval": 2, "burn_in_period": 0, "quantile_fraction": fraction}
        world = World(pbt_scheduler(**given), seed, slots=20)
        world.add(9)
        for time in range(1, 13):
            scores = sorted((time * 100 + world.random.randint(0, 30) for _ in world.trials), reverse=True)
            for score, trial in zip(scores, world.random.sample(world.trials, len(world.trials)), strict=True):
                world.fill()
                if trial.time < time:
                    pbt_report(world, trial, time, sign * score)
        cases.append(compact(world, "pbt", **given, synch=False))
    return cases


def pbt_synch() -> list[dict[str, Any]]:
    cases = []
    options = itertools.product(("max", "min"), ((4, 0.25), (9, 0.25), (6, 0.5)), ((3, 0, 1), (4, 6, 3)), (3, 20))
    for seed, (mode, (trials, fraction), (interval, burn_in, step), slots) in enumerate(options):
        given = {"mode": mode, "perturbation_interval": interval, "burn_in_period": burn_in}
        given |= {"quantile_fraction": fraction}
        world = World(pbt_scheduler(**given, synch=True), seed, slots)
        world.add(trials)
        world.fill()
        # In steps that do not divide the interval, Ray comes to a point where everybody waits for everybody.
        while world.running() and len(world.events) < 100:
            trial = world.random.choice(world.running())
            pbt_report(world, trial, trial.time + step, world.random.randint(0, 40))
            world.fill()
        cases.append(compact(world, "pbt", **given, synch=True))
    return cases


def scripted(scheduler: Any, slots: int, trials: int, script: list[tuple[Any, ...]]) -> World:
    """`(trial, time, score)` is a report; with `"end"` behind it, the trial ends by itself."""
    world = World(scheduler, 0, slots)
    world.add(trials)
    world.fill()
    for number, time, score, *ends in script:
        trial = world.trials[number]
        if ends:
            world.end(trial, time, score)
        elif isinstance(scheduler, PopulationBasedTraining):
            pbt_report(world, trial, time, score, everyone_saves=False)
        else:
            world.report(trial, time, score)
        if isinstance(scheduler, HyperBandScheduler):
            world.events[-1].append(sorted(world.stopped))
        world.fill()
    return world


def differences() -> dict[str, dict[str, Any]]:
    """Where Ray does it differently: the test says why we do not."""
    cases = {}

    def add(name: str, kind: str, world: World, **given: Any) -> None:
        cases[name] = compact(world, kind, **given)

    given: dict[str, Any] = {"mode": "max", "max_t": 9, "grace_period": 1, "reduction_factor": 3}
    jump = [(0, 1, 100), (1, 4, 5), (1, 5, 6)]
    rule = AsyncHyperBandScheduler("t", "score", **given)
    add("asha_jumped_over_a_rung", "asha", scripted(rule, 3, 2, jump), **given)
    given = {**given, "stop_last_trials": False}
    rule = AsyncHyperBandScheduler("t", "score", **given)
    steps = [(trial, time, 10 - trial if time == 9 else time) for time in (1, 3, 9) for trial in (0, 1)]
    add("asha_halves_at_the_end", "asha", scripted(rule, 3, 2, steps), **given)

    given = {"mode": "max", "grace_period": 1, "min_samples_required": 1, "min_time_slice": 0}
    last_twice = [(0, 1, 10), (0, 2, 40), (0, 2, 40, "end"), (1, 1, 10), (1, 2, 27)]
    rule = MedianStoppingRule("t", "score", **given)
    add("median_counts_the_last_report_twice", "median", scripted(rule, 2, 2, last_twice), **given)
    given = {**given, "min_time_slice": 5}
    rule = MedianStoppingRule("t", "score", **given)
    add("median_yields_before_its_first_slice", "median", scripted(rule, 1, 2, [(0, 1, 1)]), **given)
    given = {**given, "min_time_slice": 0, "hard_stop": False}
    spared = [(0, 1, 50), (1, 1, 10), (0, 1, 50, "end"), (1, 2, 190), (2, 1, 60), (2, 2, 60)]
    rule = MedianStoppingRule("t", "score", **given)
    add("median_forgets_whom_it_spared", "median", scripted(rule, 3, 3, spared), **given)

    given = {"mode": "max", "max_t": 4, "reduction_factor": 2}
    scheduler, _ = band_of(4, 2, "max")
    # The brackets of three and three trials end at once. In that of four, the best two go on, and one of them ends.
    ended: list[tuple[Any, ...]] = [(number, 1, 0, "end") for number in range(6)]
    ended += [(number, 1, number) for number in (6, 7, 8, 9)] + [(8, 2, 1), (9, 2, 1, "end")]
    add("hyperband_waits_for_one_that_ended", "hyperband", scripted(scheduler, 10, 10, ended), **given)
    cases["hyperband_waits_for_one_that_ended"]["brackets"] = brackets_of(scheduler)
    scheduler, _ = band_of(4, 2, "max")
    equal = [(number, 1, 0) for number in (6, 7, 8, 9)]
    add("hyperband_keeps_the_newer_of_equals", "hyperband", scripted(scheduler, 10, 10, equal), **given)
    cases["hyperband_keeps_the_newer_of_equals"]["brackets"] = brackets_of(scheduler)
    given = {"mode": "max", "max_t": 9, "reduction_factor": 3}
    scheduler, _ = band_of(9, 3, "max")
    few = [(number, 1, number) for number in (8, 9, 10, 11)]
    add("hyperband_halves_what_is_not_full", "hyperband", scripted(scheduler, 12, 12, few), **given)

    given = {"mode": "max", "perturbation_interval": 1, "burn_in_period": 0, "quantile_fraction": 0.5}
    unsaved = [(0, 1, 5), (1, 1, 9), (1, 2, 1)]
    add("pbt_skips_who_was_not_best_before", "pbt", scripted(pbt_scheduler(**given), 2, 2, unsaved), **given)
    world = scripted(pbt_scheduler(**given, synch=True), 3, 3, [(0, 1, 1), (1, 1, 2), (2, 1, 3, "end")])
    add("pbt_waits_for_one_that_ended", "pbt", world, **given, synch=True)
    return cases


def main() -> None:
    logging.disable(logging.CRITICAL)
    random.seed(0)
    recorded = {
        "ray": ray.__version__,
        "recorded_by": "scripts/record_ray_schedulers.py",
        "asha_rungs": asha_rungs(),
        "hyperband_plans": hyperband_plans(),
        "cases": [*fifo(), *asha(), *median(), *hyperband(), *pbt(), *pbt_rounds(), *pbt_synch()],
        "differences": differences(),
    }
    lines = json.dumps(recorded, separators=(",", ":")).replace('{"scheduler"', '\n{"scheduler"')
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(lines + "\n")
    print(f"{FILE}: {len(lines)} bytes, {sum(len(case['events']) for case in recorded['cases'])} events")


if __name__ == "__main__":
    main()
