"""What the user decides in Python, in the driver: asked by the head, told of what happens, saved for the next time.

ANSWER-1: a searcher and a scheduler hear of trials in the order in which things happened, before they are asked again.
"""

import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from carril._internal import spec
from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.train._locations import is_uri, joined
from carril.tune._per_trial import callbacks_of
from carril.tune._plan import asks_resources
from carril.tune._space import resolve
from carril.tune._stored import look_up, read_experiment
from carril.tune._trainers import merged
from carril.tune._values import decoded, encoded
from carril.tune.schedulers._trial import Controller, Trial
from carril.tune.trainable import resources_of

if TYPE_CHECKING:
    from carril._native import Run
    from carril.tune._plan import Plan
    from carril.tune._stored import StoredTrial

_STATES = {
    "pending": Trial.PENDING,
    "running": Trial.RUNNING,
    "paused": Trial.PAUSED,
    "terminated": Trial.TERMINATED,
    "error": Trial.ERROR,
}
_SEARCHER_STATE = "searcher-state.json"
_SEARCHER_PICKLES = ("searcher-state-0.pkl", "searcher-state-1.pkl")
# A searcher is saved after so many times the time that it took to save it.
_SPARING = 20


class Answers:
    """The user's side of one experiment."""

    def __init__(self, plan: "Plan", run: "Run", warn: Callable[[str], None]) -> None:
        self._plan, self._run, self._warn = plan, run, warn
        self._controller = Controller()
        self._trials: dict[int, Trial] = {}
        self._numbers: dict[str, int] = {}
        # Trials that the searcher knows under their id, and those whose end it has heard of.
        self._suggested: set[int] = set()
        self._heard: set[int] = set()
        self._next_save = 0.0
        self._saves = 0
        self._steps = 0
        self._callbacks = callbacks_of(plan.run_config)
        self._base = _constants_of(plan.space) if plan.asks_searcher else {}
        # With which the ids of the trials begin: those of an experiment that goes on have the first one's.
        self._prefix = run.run_id[:5]
        if plan.asks_searcher:
            stored = read_experiment(run.path, spec.storage_filesystem(plan.run_config))
            self._prefix = str(stored.record["id"])[:5]
            if stored.trials:
                self._remember(stored.trials)
        self._begun = False

    @property
    def wants_reports(self) -> bool:
        return bool(self._callbacks) or self._plan.asks_searcher

    @property
    def follows_trials(self) -> bool:
        """Somebody is told, or asked, about more than how the experiment ended."""
        return self.wants_reports or self._plan.asks_scheduler or self._plan.stopper is not None

    def follow(self, run: "Run") -> None:
        self._run = run
        if not self._begun:
            self._begun = True
            samples = self._plan.tune_config.num_samples
            self._call("setup", stop=self._plan.stopper, num_samples=samples, total_num_samples=self._plan.total)

    # ---------------------------------------------------------------- what happens

    def made(self, number: int, made: dict[str, Any], config: dict[str, Any]) -> None:
        """A trial is there, or has another config."""
        known = self._trials.get(number)
        if known is not None:
            known.config = config
            return
        path = joined(self._run.path, made["directory"])
        trial = Trial(
            trial_id=made["id"],
            config=config,
            evaluated_params=dict(config),
            experiment_tag=made["tag"],
            trainable_name=self._plan.trainable_name,
            local_path=path,
            resources=dict(made["resources"]),
            custom_trial_name=made["name"] if self._plan.tune_config.trial_name_creator else None,
        )
        self._trials[number] = trial
        self._numbers[made["id"]] = number
        self._controller.add(trial)
        if self._plan.asks_scheduler:
            self._plan.scheduler.on_trial_add(self._controller, trial)

    def changed(self, number: int, state: str, reason: str) -> None:
        trial = self._trials[number]
        before, trial.status = trial.status, _STATES.get(state, trial.status)
        if state == "running" and before != Trial.RUNNING:
            if trial.checkpoint is not None:
                self._tell("on_trial_restore", trial)
            self._tell("on_trial_start", trial)
        elif state == "paused" and self._plan.asks_searcher and number in self._suggested:
            self._plan.searcher.on_pause(self._search_id(number))

    def restarted(self, number: int) -> None:
        self._tell("on_trial_recover", self._trials[number])

    def reported(self, number: int, event: dict[str, Any]) -> None:
        trial = self._trials[number]
        trial.last_result = result = self._result(trial, event["metrics"])
        if event["checkpoint"]:
            from carril.train._checkpoint import Checkpoint

            filesystem = spec.storage_filesystem(self._plan.run_config)
            trial.checkpoint = Checkpoint.stored(event["checkpoint"]["path"], filesystem)
        if self._plan.asks_searcher and number in self._suggested:
            self._plan.searcher.on_trial_result(self._search_id(number), result)
        self._tell("on_trial_result", trial, result=result)
        if event["checkpoint"]:
            self._tell("on_trial_save", trial)
            self._tell("on_checkpoint", trial, checkpoint=trial.checkpoint)

    def ended(self, number: int, event: dict[str, Any]) -> None:
        trial = self._trials[number]
        failed = event["status"] == "failed"
        if event["metrics"]:
            trial.last_result = self._result(trial, event["metrics"])
        trial.error = event["headline"] if failed else None
        if self._plan.asks_scheduler:
            if failed:
                self._plan.scheduler.on_trial_error(self._controller, trial)
            else:
                self._plan.scheduler.on_trial_complete(self._controller, trial, trial.last_result)
        if self._plan.asks_searcher:
            self._tell_searcher(number, trial.trial_id, trial.config, trial.last_result, failed)
            self._save()
        self._tell("on_trial_error" if failed else "on_trial_complete", trial)

    def over(self) -> None:
        """The experiment has ended."""
        if self._plan.asks_searcher:
            self._save(last=True)
        self._call("on_experiment_end", list(self._trials.values()))

    def _result(self, trial: Trial, metrics: dict[str, Any]) -> dict[str, Any]:
        result = decoded(metrics)
        assert isinstance(result, dict)
        result.setdefault("config", trial.config)
        return result

    def _tell(self, hook: str, trial: Trial, **more: Any) -> None:
        if not self._callbacks:
            return
        trials = list(self._trials.values())
        self._call("on_step_begin", iteration=self._steps, trials=trials)
        self._call(hook, iteration=self._steps, trials=trials, trial=trial, **more)
        self._call("on_step_end", iteration=self._steps, trials=trials)
        self._steps += 1

    def _call(self, hook: str, *arguments: Any, **more: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(*arguments, **more)

    # ---------------------------------------------------------------- what is asked

    def answer(self, question: dict[str, Any]) -> None:
        kind, number = question["kind"], question["trial"]
        about = question["about"]
        if kind == "suggest":
            answer = self._suggest(number)
        elif kind == "resolve":
            answer = self._resolve(number, decoded(about["config"]), about["paths"], about["explored"])
        elif kind == "judge":
            answer = self._judge(number, about)
        else:
            answer = self._choose()
        self._run.answer(question["number"], answer)

    def _search_id(self, number: int) -> str:
        return f"{self._prefix}_{number:05d}"

    def _suggest(self, number: int) -> dict[str, Any]:
        from carril.tune.search.searcher import Searcher

        suggested = self._plan.searcher.suggest(self._search_id(number))
        if suggested is None:
            return {"kind": "not_now"}
        if suggested == Searcher.FINISHED:
            return {"kind": "finished"}
        if not isinstance(suggested, dict):
            raise ConfigTypeError(
                f"`{type(self._plan.searcher).__name__}.suggest` returned {kind_of(suggested)}: it must be a config"
            )
        self._suggested.add(number)
        self._save()
        return {"kind": "config", "config": encoded(merged(self._base, suggested))}

    def _resolve(self, number: int, config: dict[str, Any], paths: list[list[str]], explored: bool) -> dict[str, Any]:
        config = resolve(config, self._plan.functions)
        scheduler = self._plan.scheduler
        for path in paths:
            _put(config, path, scheduler._functions[tuple(path)]())
        explore = getattr(scheduler, "custom_explore_fn", None)
        if explored and explore is not None:
            config = explore(config)
            if not isinstance(config, dict):
                raise ConfigTypeError(f"`custom_explore_fn` returned {kind_of(config)}: it must be a config")
        answer: dict[str, Any] = {"kind": "resolved", "config": encoded(config)}
        if not explored and self._plan.asks_names:
            answer.update(self._names(number, config))
        if not explored and asks_resources(self._plan.trainable):
            answer["resources"] = resources_of(self._plan.trainable, config)
        return answer

    def _names(self, number: int, config: dict[str, Any]) -> dict[str, str]:
        trial = Trial(
            trial_id=self._search_id(number),
            config=config,
            evaluated_params=dict(config),
            trainable_name=self._plan.trainable_name,
        )
        names = {"name": "", "directory": ""}
        given = {"name": self._plan.tune_config.trial_name_creator}
        given["directory"] = self._plan.tune_config.trial_dirname_creator
        for key, creator in given.items():
            if creator is not None:
                name = creator(trial)
                if not isinstance(name, str) or not name or (key == "directory" and "/" in name):
                    raise ConfigError(f"the creator of a trial's {key} returned {name!r}: it must be a name")
                names[key] = name
        return names

    def _judge(self, number: int, metrics: dict[str, Any]) -> dict[str, Any]:
        trial = self._trials[number]
        trial.last_result = result = self._result(trial, metrics)
        stopper, scheduler = self._plan.stopper, self._plan.scheduler
        answer: dict[str, Any] = {"kind": "judged", "verdict": "continue", "reason": "", "stop_all": False}
        if stopper is not None:
            if stopper(trial.trial_id, result):
                answer.update(verdict="stop", reason=f"`{type(stopper).__name__}` stops it")
            answer["stop_all"] = bool(stopper.stop_all())
        if answer["verdict"] == "continue" and self._plan.asks_scheduler:
            decision = scheduler.on_trial_result(self._controller, trial, result)
            words = {scheduler.CONTINUE: "continue", scheduler.NOOP: "continue"}
            words.update({scheduler.PAUSE: "pause", scheduler.STOP: "stop"})
            if decision not in words:
                raise ConfigError(f"`{type(scheduler).__name__}.on_trial_result` returned {decision!r}")
            answer.update(verdict=words[decision], reason=f"`{type(scheduler).__name__}` says {decision}")
        return answer

    def _choose(self) -> dict[str, Any]:
        chosen = self._plan.scheduler.choose_trial_to_run(self._controller)
        number = None if chosen is None else self._numbers[chosen.trial_id]
        return {"kind": "chosen", "trial": number}

    # ---------------------------------------------------------------- the searcher's memory

    def _place(self) -> str | None:
        return None if is_uri(self._run.path) else os.path.join(self._run.path, _SEARCHER_STATE)

    def _save(self, last: bool = False) -> None:
        """Keeps what the searcher knows, and of which trials that is: one file names the other, so that they fit together."""
        place = self._place()
        if place is None or (not last and time.monotonic() < self._next_save):
            return
        began = time.monotonic()
        # The one that is named now stays until the next is.
        name = _SEARCHER_PICKLES[self._saves % 2]
        state = {"state": name, "suggested": sorted(self._suggested), "ended": sorted(self._heard)}
        try:
            self._plan.searcher.save(os.path.join(os.path.dirname(place), name))
            with open(f"{place}.part", "w", encoding="utf-8") as file:
                json.dump(state, file)
            os.replace(f"{place}.part", place)
        except Exception as error:
            self._next_save = float("inf")
            self._warn(
                f"`{type(self._plan.searcher).__name__}` cannot be saved, and will know less if the experiment has to go on: "
                f"{type(error).__name__}: {error}"
            )
            return
        self._saves += 1
        self._next_save = time.monotonic() + _SPARING * (time.monotonic() - began)

    def _remember(self, trials: "list[StoredTrial]") -> None:
        """Brings the searcher to where an earlier driver's was, whose trials these are."""
        place, known, heard = self._place(), set[int](), set[int]()
        if place is not None and os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                state = json.load(file)
            self._plan.searcher.restore(os.path.join(os.path.dirname(place), state["state"]))
            self._saves = _SEARCHER_PICKLES.index(state["state"]) + 1
            known, heard = set(state["suggested"]), set(state["ended"])
        self._suggested = {trial.number for trial in trials if trial.number in known}
        self._heard = set(heard)
        for trial in trials:
            if trial.is_over and trial.number not in heard:
                self._tell_searcher(trial.number, trial.id, trial.config, trial.metrics, trial.status == "error")

    def _tell_searcher(
        self, number: int, trial_id: str, config: dict[str, Any], result: dict[str, Any] | None, failed: bool
    ) -> None:
        """A trial has ended: one that the searcher suggested, or one that its saved state does not know."""
        searcher, metric = self._plan.searcher, self._plan.metric
        self._heard.add(number)
        if number in self._suggested:
            searcher.on_trial_complete(trial_id, None if failed else result, failed)
            return
        value = look_up(result or {}, metric) if isinstance(metric, str) else None
        if not isinstance(value, (int, float)):
            return
        try:
            searcher.add_evaluated_point(config, float(value), failed)
        except (NotImplementedError, ConfigError) as error:
            # It cannot learn from what it did not suggest itself, or the files know a value only by its text.
            self._warn(
                f"`{type(searcher).__name__}` was not told of trial `{trial_id}`: {str(error).partition(chr(10))[0]}"
            )


def _constants_of(space: Any) -> dict[str, Any]:
    """What of a space is not drawn: a searcher that knows nothing of it need not repeat it."""
    from carril.tune.search.sample import Domain, is_grid

    kept: dict[str, Any] = {}
    for key, value in space.items():
        if isinstance(value, Domain) or is_grid(value):
            continue
        kept[key] = _constants_of(value) if isinstance(value, dict) else value
    return kept


def _put(config: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value
