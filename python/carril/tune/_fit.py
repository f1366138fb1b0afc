"""One experiment as its driver sees it: submitted, watched, asked, concluded.

The head decides; here its events are shown and passed to callbacks, and what the user decides in Python is answered: a
searcher, a scheduler, a stopper, `sample_from`.

TFIT-1: `fit()` returns or raises only when the experiment has ended.
TFIT-2: the first Ctrl-C stops the experiment, the second ends it at once; both leave as KeyboardInterrupt, and the same
  script resumes it.
TFIT-3: a head that dies is started again, and the experiment goes on.
"""

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from carril._internal import cells, driver, spec
from carril._internal.pickling import dump_call, dumps
from carril.exceptions import (
    CarrilError,
    ConfigError,
    ConnectionLostError,
    InternalError,
    UserCodeError,
    from_failure,
    kind_of,
    raised_as,
)
from carril.train._follow import Follower
from carril.train._preemption import PreemptionSignals
from carril.tune import _plan, _trainers
from carril.tune._console import Summary, TrialView, TuneConsole
from carril.tune._per_trial import callbacks_of
from carril.tune._restore import keep
from carril.tune._stored import read_experiment
from carril.tune._values import decoded, encoded

if TYPE_CHECKING:
    from carril._native import Client, Run
    from carril.tune._plan import Plan
    from carril.tune._result_grid import ResultGrid

_PARTS = ("carril.tune._session", "carril.tune.trainable")
# Heads that may be lost one after the other before the experiment is given up.
_HEADS = 3


def fit(plan: "Plan") -> "ResultGrid":
    """Runs the experiment to its end."""
    plan.callbacks = callbacks_of(plan.run_config)
    client = driver.ensure_client()
    driver.flush_imports()
    # What every trial's worker needs is imported before it is forked.
    client.prepare(sys.executable, driver.absolute_path(), list(_PARTS))
    data = dump_call(_call(plan), _function_of(plan), None)
    watch: _Watch | None = None
    goes_on = plan.resuming is not None or bool(plan.run_config.resume)
    heads = 0
    with PreemptionSignals() as signals:
        try:
            while True:
                try:
                    run = _submit(plan, client, data, goes_on)
                    # Whatever becomes of this head, the next one resumes what this one has begun.
                    goes_on = True
                    if watch is None:
                        keep(plan, run.path)
                        watch = _Watch(plan, run)
                    watch.follow(run, signals)
                    return watch.conclude(watch.until_ended())
                except ConnectionLostError as lost:
                    heads += 1
                    lost = driver.explained(lost, client.head_panic)
                    if (
                        heads > _HEADS
                        or (watch is not None and watch.is_interrupted)
                        or driver.current_client() is None
                    ):
                        raise lost
                    client = driver.replace_lost(client)
                    if watch is not None:
                        watch.head_was_lost(lost)
        finally:
            if watch is not None:
                watch.close()


def _submit(plan: "Plan", client: "Client", data: bytes, goes_on: bool) -> "Run":
    call = client.put_blob(data)
    text = _plan.specification(plan, client, goes_on)
    constants = [_sendable(value) for value in plan.constants.values]
    environment = {**os.environ, **driver.worker_environment(), "TUNE_ORIG_WORKING_DIR": os.getcwd()}
    if _trainers.is_trainer(plan.trainable):
        environment.update(_trainers.data_environment(plan.trainable, plan.space))
    return client.submit_experiment(text, constants, call, environment)


def _sendable(value: Any) -> Any:
    sent = encoded(value)
    try:
        dumps(sent)
    except Exception as error:
        raise ConfigError(
            f"`param_space` holds {kind_of(value)}, which cannot be sent to the trials: {error}",
            hints=["make it inside of the trainable"],
        ) from error
    return sent


def _function_of(plan: "Plan") -> Any:
    return plan.trainable.train_loop_per_worker if _trainers.is_trainer(plan.trainable) else plan.trainable


def _call(plan: "Plan") -> dict[str, Any]:
    """What `carril._internal.worker` reads."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    call: dict[str, Any] = {
        "details": {"experiment_name": plan.name, "trainable_name": plan.trainable_name},
        "argv": list(sys.argv),
        "script": os.path.abspath(script) if script else None,
        "cells": cells.here(),
        "of_the_user": _function_of(plan),
    }
    if _trainers.is_trainer(plan.trainable):
        trainer = plan.trainable
        function = trainer.train_loop_per_worker
        return {
            **call,
            "details": {**call["details"], **_trainers.data_details(trainer, plan.space)},
            "function": function,
            "of_trainer": trainer.train_loop_config,
            "backend": trainer.backend_config,
        }
    return {**call, "trainable": plan.trainable, "options": _plan.options_of(plan), "backend": None}


class _Watch(Follower):
    """Follows one experiment to its end."""

    def __init__(self, plan: "Plan", run: "Run") -> None:
        from carril.tune._answers import Answers

        self._plan = plan
        self._views: dict[int, TrialView] = {}
        self._configs: dict[int, dict[str, Any]] = {}
        self._failed: dict[int, dict[str, Any]] = {}
        config, keeps_output = plan.run_config, spec.under_as_ray()
        self._shows_output = driver.shows_output() and (config.verbose > 0 or keeps_output)
        metric, mode = plan.metric, plan.mode
        single = isinstance(metric, str) and isinstance(mode, str)
        console = TuneConsole(
            run.name,
            run.path,
            metric if single else None,
            mode if single else None,
            config.verbose,
            plan.total,
            longest=_longest(plan),
            reporter=config.progress_reporter,
            keeps_output=keeps_output,
        )
        super().__init__(run, console)
        self._answers: Answers = Answers(plan, run, console.warning)
        # What the running trials hold, of what there is.
        self._holds: dict[int, dict[str, float]] = {}
        self._asks: dict[int, dict[str, float]] = {}
        self._there: dict[str, float] = {}
        if not console.is_silent:
            self._show_known(run)

    def _show_known(self, run: "Run") -> None:
        """An experiment that is resumed has trials that ended before: they count, and one of them may be the best."""
        from carril.tune._result_grid import ResultGrid

        stored = read_experiment(run.path, spec.storage_filesystem(self._plan.run_config))
        stored.trials = [trial for trial in stored.trials if trial.is_over]
        self._console.known(ResultGrid.of(stored).views())

    def follow(self, run: "Run", signals: PreemptionSignals) -> None:
        self._run = run
        self._answers.follow(run)
        config = self._plan.run_config
        # A driver that shows nothing and decides nothing is spared what it would throw away.
        is_quiet = config.verbose == 0 and config.progress_reporter is None and not self._answers.follows_trials
        if not self._console.is_silent:
            self._there = driver.cluster_resources()
        run.watch(self._answers.wants_reports or config.verbose > 1, self._shows_output, quiet=is_quiet)
        signals.pass_on_to(run.preempt)

    def _of_the_user(self, raised: Exception) -> Exception | None:
        # What the user decides in Python has failed: nothing can be decided any more.
        return None if isinstance(raised, ConnectionLostError) else raised

    def _on_event(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "of_trial":
            self._on_trial_event(event["trial"], event["kind"], event["event"])
        elif kind == "trial":
            self._on_trial(event)
        elif kind == "question":
            if self._driver_error is None and not self._interrupts:
                with self._console.paused():
                    self._answers.answer(event)
        elif kind == "warning":
            self._console.warning(event["text"])
        elif kind == "state":
            self._console.resuming(event["reason"], event["trials_total"] or None)
        elif kind == "ended":
            self._ended = event

    def _on_trial(self, event: dict[str, Any]) -> None:
        number, made = event["trial"], event["made"]
        if made is not None:
            self._configs[number] = config = decoded(made["config"])
            # One that is there already has another config, or another head: what it has reported stays.
            view = self._views.get(number) or TrialView(number, made["id"], made["name"], event["state"], config)
            self._views[number] = view._replace(config=config, directory=made["directory"])
            self._asks[number] = made["resources"]
            self._answers.made(number, made, config)
        view = self._views[number]
        status = view.status if event["state"] == "stopping" else event["state"]
        self._note_holding(number, status)
        self._changed(number, status=status, reason=event["reason"])
        if self._driver_error is None:
            with self._console.paused():
                state = "terminated" if event["state"] == "stopped" else event["state"]
                self._answers.changed(number, state, event["reason"])

    def _note_holding(self, number: int, status: str) -> None:
        if self._console.is_silent or (status == "running") == (number in self._holds):
            return
        if status == "running":
            self._holds[number] = self._asks.get(number, {})
        else:
            del self._holds[number]
        used: dict[str, float] = {}
        for held in self._holds.values():
            for name, amount in held.items():
                used[name] = used.get(name, 0.0) + amount
        asked = {name for amounts in self._asks.values() for name, amount in amounts.items() if amount}
        shown = {name: amount for name, amount in self._there.items() if name in asked | {"CPU", "GPU"} and amount}
        self._console.resources(used, shown)

    def _changed(self, number: int, **changes: Any) -> TrialView:
        self._views[number] = view = self._views[number]._replace(**changes)
        self._console.trial(view)
        return view

    def _learnt(self, number: int, metrics: dict[str, Any], iterations: int) -> None:
        # One that goes on from another trial counts from there.
        reached = metrics.get("training_iteration") or iterations
        self._changed(number, metrics=metrics, iterations=reached, seconds=float(metrics.get("time_total_s") or 0.0))

    def _on_trial_event(self, number: int, kind: str, event: dict[str, Any]) -> None:
        view = self._views[number]
        if kind == "output":
            self._console.output(view.name, event["text"])
        elif kind in ("reported", "progress"):
            self._learnt(number, event["metrics"], event["iteration"])
            if kind == "reported" and self._driver_error is None:
                with self._console.paused():
                    self._answers.reported(number, event)
        elif kind == "warning":
            self._console.warning(f"{view.name}: {event['text']}")
        elif kind == "restarted":
            self._console.warning(f"{view.name} is started again: {event['reason']}")
            self._answers.restarted(number)
        elif kind == "ended":
            self._on_trial_ended(number, event)

    def _on_trial_ended(self, number: int, event: dict[str, Any]) -> None:
        if event["metrics"]:
            self._learnt(number, event["metrics"], event["iterations"])
        if self._driver_error is None:
            with self._console.paused():
                self._answers.ended(number, event)
        if event["status"] == "failed":
            self._failed[number] = event
            trace = event["failures"][0]["traceback"] if event["failures"] else ""
            self._console.error(self._views[number], event["headline"], trace)

    def conclude(self, ended: dict[str, Any] | None) -> "ResultGrid":
        status = "stopped"
        if ended is not None:
            status = {"finished": "finished", "failed": "failed"}.get(ended["status"], "stopped")
            if not self._console.is_silent:
                # A storage that cannot be read any more is reported below: what was seen is shown.
                with contextlib.suppress(CarrilError):
                    self._console.settled(self._grid().views())
            self._console.finished(Summary(status, ended["seconds"], ended["headline"]))
        self._answers.over()
        if self._driver_error is not None:
            raise self._driver_error
        if self._interrupts:
            raise KeyboardInterrupt
        if ended is None:
            raise InternalError("the head closed the event stream before the experiment ended")
        if ended["status"] not in ("finished", "failed"):
            raise self._stopped(ended)
        if ended["status"] == "failed":
            failure = _failure(ended)
            # With `fail_fast` a trial that failed is in the results; what all trials need is not one of them.
            if failure.origin == "infrastructure" or not self._plan.run_config.failure_config.fail_fast:
                raise failure
        grid = self._grid()
        if self._plan.run_config.failure_config.fail_fast == "raise" and grid.errors:
            raise grid.errors[0]
        return grid

    def _stopped(self, ended: dict[str, Any]) -> BaseException:
        from carril.exceptions import AbortedError

        return AbortedError(
            f"the experiment was stopped: {ended['headline']}",
            hints=["`fit()` with the same name resumes it"],
        )

    def _grid(self) -> "ResultGrid":
        from carril.train._failures import group_error
        from carril.tune._result_grid import ResultGrid

        experiment = read_experiment(self._run.path, spec.storage_filesystem(self._plan.run_config))
        for trial in experiment.trials:
            # Storage that refuses everything has not been told of the end.
            if not trial.is_over:
                trial.status = "unfinished"
        errors: dict[int, BaseException] = {}
        alone = "" if _trainers.is_trainer(self._plan.trainable) else "the trial"
        for number, event in self._failed.items():
            if event["failures"]:
                errors[number] = _in_words_of_ray(group_error(event, alone), alone)
        return ResultGrid.of(experiment, configs=self._configs, errors=errors)


def _in_words_of_ray(error: CarrilError, alone: str) -> CarrilError:
    """Scripts for Ray know the error of a trial of one process as a `RayTaskError` of the user's kind."""
    cause = error.__cause__
    if not alone or cause is None or isinstance(cause, CarrilError) or not spec.under_as_ray():
        return error
    made = raised_as(UserCodeError(str(error)), cause)
    made.__cause__ = cause
    return made


def _longest(plan: "Plan") -> float | None:
    """The number of reports after which a trial is done, where the scheduler or a rule says so."""
    limits = [plan.rules.get("training_iteration")]
    if getattr(plan.scheduler, "time_attr", "") == "training_iteration":
        limits.append(getattr(plan.scheduler, "max_t", None))
    return min((float(limit) for limit in limits if isinstance(limit, (int, float))), default=None)


def _failure(ended: dict[str, Any]) -> CarrilError:
    from carril.tune.error import TuneError

    failure = ended["failure"] or {}
    if failure.get("origin") == "infrastructure":
        return from_failure(**{name: failure[name] for name in ("code", "origin", "retryable", "message", "hints")})
    return TuneError(ended["headline"])
