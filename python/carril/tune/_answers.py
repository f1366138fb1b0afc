"""What the user decides in Python, in the driver: asked by the head and told of what happens.

ANSWER-1: a searcher and a scheduler hear of trials in the order in which things happened, before they are asked again.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from carril._internal import spec
from carril._internal.near import near
from carril.exceptions import CarrilError, ConfigError
from carril.train._console_text import users
from carril.train._locations import is_uri, joined
from carril.train._result import flatten
from carril.tune import _trainers
from carril.tune._plan import asks_resources
from carril.tune._restore import keep, states_of
from carril.tune._searching import Searching
from carril.tune._space import constants_of, resolve
from carril.tune._stored import flat_parameters, read_experiment
from carril.tune._values import decoded, encoded
from carril.tune.error import TuneError
from carril.tune.schedulers._trial import Controller, Trial
from carril.tune.stopper.stopper import value_in
from carril.tune.trainable import resources_of

if TYPE_CHECKING:
    from carril._native import Run
    from carril.tune._plan import Plan
    from carril.tune.stopper.stopper import Stopper

# Seconds between two times that the states of callbacks are kept.
_KEEP_EVERY = 10.0

_STATES = {
    "pending": Trial.PENDING,
    "running": Trial.RUNNING,
    "paused": Trial.PAUSED,
    "terminated": Trial.TERMINATED,
    "error": Trial.ERROR,
}


class Answers:
    """The user's side of one experiment."""

    def __init__(self, plan: "Plan", run: "Run", warn: Callable[[str], None]) -> None:
        self._plan, self._run, self._warn = plan, run, warn
        self._controller = Controller()
        self._trials: dict[int, Trial] = {}
        self._numbers: dict[str, int] = {}
        self._steps = 0
        self._callbacks = plan.callbacks
        self._prefix = run.run_id[:5]
        self._searching = self._begin_search() if plan.asks_searcher else None
        self._begun = False
        self._next_keep = 0.0
        self._told_unseen = False

    def _begin_search(self) -> Searching:
        plan, path = self._plan, self._run.path
        stored = read_experiment(path, spec.storage_filesystem(plan.run_config))
        # With which the ids of the trials begin: those of an experiment that goes on have the first one's.
        self._prefix = str(stored.record["id"])[:5]
        base, place = constants_of(plan.space), None if is_uri(path) else path
        space = re.sub(r" at 0x[0-9a-f]+", "", repr(plan.whole_space))
        searching = Searching(plan.searcher, plan.metric, base, self._prefix, place, self._warn, space)
        if stored.trials:
            searching.remember(stored.trials)
        return searching

    @property
    def wants_reports(self) -> bool:
        return bool(self._callbacks) or self._plan.asks_searcher or self._plan.asks_scheduler

    @property
    def follows_trials(self) -> bool:
        """Somebody hears, or is asked, about more than how the experiment ended."""
        return self.wants_reports or self._plan.stopper is not None

    def follow(self, run: "Run") -> None:
        self._run = run
        if not self._begun:
            self._begun = True
            samples = self._plan.tune_config.num_samples
            self._call("setup", stop=self._plan.stopper, num_samples=samples, total_num_samples=self._plan.total)

    # ---------------------------------------------------------------- what happens

    def made(self, number: int, made: dict[str, Any], config: dict[str, Any]) -> None:
        """A trial is there, or has another config."""
        if self._searching is not None:
            self._searching.made(number)
        known = self._trials.get(number)
        if known is not None:
            known.config = config
            return
        path = joined(self._run.path, made["directory"])
        trial = Trial(
            self._plan.trainable_name,
            config=config,
            trial_id=made["id"],
            evaluated_params=self._drawn(config),
            experiment_tag=made["tag"],
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
        elif state == "paused" and (known := self._known(number)) is not None:
            self._plan.searcher.on_pause(known)

    def restarted(self, number: int) -> None:
        self._tell("on_trial_recover", self._trials[number])

    def reported(self, number: int, event: dict[str, Any]) -> None:
        trial = self._trials[number]
        trial.last_result = result = self._result(trial, event["metrics"])
        if event["checkpoint"]:
            from carril.train._checkpoint import Checkpoint

            filesystem = spec.storage_filesystem(self._plan.run_config)
            trial.checkpoint = Checkpoint.stored(event["checkpoint"]["path"], filesystem)
        with self._processing():
            if (known := self._known(number)) is not None:
                self._plan.searcher.on_trial_result(known, _both_ways(result))
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
            elif self._controller.has_removed(trial):
                self._plan.scheduler.on_trial_remove(self._controller, trial)
            else:
                self._plan.scheduler.on_trial_complete(self._controller, trial, _both_ways(trial.last_result))
        if self._searching is not None:
            self._searching.ended(number, trial.trial_id, trial.config, _both_ways(trial.last_result), failed)
            self._searching.save()
        self._tell("on_trial_error" if failed else "on_trial_complete", trial)
        self._keep_states()

    def over(self) -> None:
        """The experiment has ended."""
        if self._searching is not None:
            self._searching.save(last=True)
        self._call("on_experiment_end", list(self._trials.values()))
        self._keep_states(last=True)

    def _keep_states(self, last: bool = False) -> None:
        """What callbacks want kept is in the experiment's directory: at the end, and now and then before."""
        callbacks = self._plan.run_config.callbacks
        if (last or time.monotonic() >= self._next_keep) and any(state is not None for state in states_of(callbacks)):
            keep(self._plan, self._run.path)
            self._next_keep = time.monotonic() + _KEEP_EVERY

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
            with self._processing():
                answer = self._judge(number, about)
        else:
            answer = self._choose(about["exhausted"])
        self._run.answer(question["number"], {**answer, "orders": self._orders()})

    def _orders(self) -> list[dict[str, Any]]:
        """What a scheduler has decided about other trials since the last answer."""
        return [self._numbered(order) for order in self._controller.take_orders()]

    def _numbered(self, order: dict[str, Any]) -> dict[str, Any]:
        """An order as the head takes it, which has trials by number."""
        numbers: dict[str, Any] = {name: self._numbers[order[name]] for name in ("trial", "from") if name in order}
        order = {name: value for name, value in order.items() if name != "ask"}
        config = {"config": encoded(order["config"])} if "config" in order else {}
        return {**order, **numbers, **config}

    @contextlib.contextmanager
    def _processing(self) -> Iterator[None]:
        """What the user's Python makes of a result; an error in it is a `TuneError` to scripts that are written for Ray."""
        try:
            yield
        except Exception as error:
            as_it_is = self._plan.run_config.failure_config.fail_fast == "raise" or not spec.under_as_ray()
            if as_it_is or isinstance(error, CarrilError):
                raise
            raise TuneError(f"a result could not be processed: {type(error).__name__}: {error}") from error

    def _known(self, number: int) -> str | None:
        """The id under which the searcher in the driver knows a trial."""
        return None if self._searching is None else self._searching.id_of(number)

    def _suggest(self, number: int) -> dict[str, Any]:
        assert self._searching is not None, "a searcher of the head is asked there"
        config = self._searching.suggest(number)
        if config is None:
            return {"kind": "not_now"}
        return {"kind": "config", "config": config} if isinstance(config, dict) else {"kind": "finished"}

    def _resolve(self, number: int, config: dict[str, Any], paths: list[list[str]], explored: bool) -> dict[str, Any]:
        config = resolve(config, self._plan.functions)
        if paths or explored:
            config = self._plan.scheduler._complete(config, paths, explored)
        elif self._plan.completes_configs:
            config = self._plan.scheduler._first_config(self._id(number), config)
        if self._plan.scales_trials:
            config = _trainers.scaled(self._plan.trainable, config)
        answer: dict[str, Any] = {"kind": "resolved", "config": encoded(config)}
        if not explored and self._plan.asks_names:
            answer.update(self._names(number, config))
        if not explored and asks_resources(self._plan.trainable):
            answer["resources"] = resources_of(self._plan.trainable, config)
        return answer

    def _id(self, number: int) -> str:
        """What the head will call a trial."""
        return f"{self._prefix}_{number:05d}"

    def _drawn(self, config: dict[str, Any]) -> dict[str, Any]:
        """What was drawn for a trial, by flattened name."""
        constant = flat_parameters(constants_of(self._plan.whole_space))
        return {name: value for name, value in flat_parameters(config).items() if name not in constant}

    def _names(self, number: int, config: dict[str, Any]) -> dict[str, str]:
        trial = Trial(
            self._plan.trainable_name,
            config=config,
            trial_id=self._id(number),
            evaluated_params=self._drawn(config),
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
            self._warn_of_unseen(stopper, number, result)
            if stopper(trial.trial_id, result):
                answer.update(verdict="stop", reason=f"`{type(stopper).__name__}` stops it")
            answer["stop_all"] = bool(stopper.stop_all())
        if answer["verdict"] == "continue" and self._plan.asks_scheduler:
            decision = scheduler.on_trial_result(self._controller, trial, _both_ways(result))
            words = {scheduler.CONTINUE: "continue", scheduler.NOOP: "continue"}
            words.update({scheduler.PAUSE: "pause", scheduler.STOP: "stop_early"})
            if decision not in words:
                raise ConfigError(f"`{type(scheduler).__name__}.on_trial_result` returned {decision!r}")
            answer.update(verdict=words[decision], reason=f"`{type(scheduler).__name__}` says {decision}")
            # What of it is more than one of these words: from where it goes on, or with what.
            for order in self._controller.take_orders(trial.trial_id):
                answer.update(self._numbered(order) if decision != scheduler.STOP else {})
        return answer

    def _warn_of_unseen(self, stopper: "Stopper", number: int, result: dict[str, Any]) -> None:
        """A stopper that goes by what nobody reports would never stop anything: that is said with the first report."""
        if self._told_unseen or result.get("training_iteration") != 1:
            return
        unseen = [name for name in stopper._looks_at() if value_in(result, name) is None]
        if unseen:
            self._told_unseen = True
            words = ", ".join(f"`{name}`" for name in users(result) if name != "config")
            close = near(unseen[0], result)
            meant = f"; did you mean `{close}`?" if close is not None else ""
            self._warn(
                f"trial {number} reported {words} and no `{unseen[0]}`, without which `{type(stopper).__name__}` "
                f"stops nothing{meant}"
            )

    def _choose(self, exhausted: bool) -> dict[str, Any]:
        self._controller.is_exhausted = exhausted
        chosen = self._plan.scheduler.choose_trial_to_run(self._controller)
        number = None if chosen is None else self._numbers[chosen.trial_id]
        return {"kind": "chosen", "trial": number}


def _both_ways(result: dict[str, Any]) -> dict[str, Any]:
    """A result for a searcher or a scheduler: values inside of dicts by their flattened names too, as Ray gives only these."""
    return {**result, **flatten(result)}
