"""One run as its driver sees it: submitted, watched event by event in the calling thread, concluded.

The head decides everything; here its events are shown, passed to callbacks, and made into a Result or an exception.

FIT-1: `fit()` returns or raises only when the run has ended.
FIT-2: the first Ctrl-C stops the run, the second ends it at once, and both leave as KeyboardInterrupt.
FIT-3: a head that dies is started again, and the run goes on from its newest checkpoint.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

from carril._internal import cells, driver, generation, spec
from carril._internal.pickling import dump_call, loads, script_classes
from carril.exceptions import CarrilError, ConnectionLostError, InternalError
from carril.train._callbacks import CallbackFailed, Callbacks, RunContext, as_objects, callbacks_of
from carril.train._checkpoint import Checkpoint
from carril.train._console import Console
from carril.train._follow import Follower
from carril.train._preemption import PreemptionSignals
from carril.train._restore import keep
from carril.train._result import Metrics, Result, in_order, reported

if TYPE_CHECKING:
    from carril._native import Client, Run
    from carril.train._trainer import DataParallelTrainer


# Heads that may be lost one after the other before one of them has taken the run: only from then on its budget counts.
_HEADS = 3


def fit(
    trainer: "DataParallelTrainer",
    client: "Client",
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    details: dict[str, Any],
) -> Result:
    """Runs the trainer's function on its workers, which have `environment` on top of the driver's own."""
    function, kind = trainer.train_loop_per_worker, type(trainer).__name__
    name = trainer.run_config.name or spec.default_name(function, kind)
    keeps_automatic_fields = generation.keeps_automatic_fields(function)
    driver.flush_imports()
    data = dump_call(_call(trainer, arguments, details), function, trainer.train_loop_config)
    check = _check(trainer)
    watch: _Watch | None = None
    panic: str | None = None
    heads = 0
    with PreemptionSignals() as signals:
        try:
            while True:
                try:
                    continues = watch.run_id if watch is not None else None
                    run = _submit(trainer, client, name, data, check, environment, continues, panic)
                    heads = 0
                    watch = watch or _Watch(trainer, run)
                    watch.follow(run, signals)
                    return watch.conclude(client, watch.until_ended(), keeps_automatic_fields)
                except ConnectionLostError as lost:
                    heads += 1
                    panic = client.head_panic
                    lost = driver.explained(lost, panic)
                    unwanted = watch is not None and watch.is_interrupted
                    if heads > _HEADS or unwanted or _is_over(client):
                        raise lost
                    # FIT-3: the run's files are there: a new head goes on from its newest checkpoint.
                    client = driver.replace_lost(client)
                    if watch is not None:
                        watch.head_was_lost(lost)
        finally:
            if watch is not None:
                watch.close()


def _is_over(client: "Client") -> bool:
    """True where no new head is wanted: after `shutdown()`, and when the head is there and has refused to go on."""
    if driver.current_client() is None:
        return True
    try:
        client.nodes()
    except ConnectionLostError:
        return False
    return True


def _submit(
    trainer: "DataParallelTrainer",
    client: "Client",
    name: str,
    data: bytes,
    check: bytes | None,
    environment: dict[str, str],
    continues: str | None,
    head_panic: str | None,
) -> "Run":
    run_config, scaling_config = trainer.run_config, trainer.scaling_config
    function, backend = trainer.train_loop_per_worker, trainer.backend_config
    call = client.put_blob(data)
    text = spec.build(
        name,
        scaling_config,
        run_config,
        backend.share_devices if backend is not None else False,
        spec.record(function, type(trainer).__name__, scaling_config, run_config, backend, keep(trainer, client, call)),
        spec.filesystem(run_config, client),
        continues,
        client.put_blob(check) if check is not None else None,
        head_panic,
        _data_words(trainer),
    )
    return client.submit(
        text,
        trainer.train_loop_config or {},
        call,
        {**os.environ, **driver.worker_environment(), **environment, **_for_data(trainer)},
    )


def _for_data(trainer: "DataParallelTrainer") -> dict[str, str]:
    if not trainer.datasets:
        return {}
    from carril.train._data import environment_of

    return environment_of(trainer.datasets)


def _call(trainer: "DataParallelTrainer", arguments: tuple[Any, ...], details: dict[str, Any]) -> dict[str, Any]:
    """What `carril._internal.worker` reads."""
    return {
        "function": trainer.train_loop_per_worker,
        "arguments": arguments,
        "backend": trainer.backend_config,
        "details": {
            "resources": trainer.scaling_config.worker_resources,
            "keeps_automatic_fields": generation.keeps_automatic_fields(trainer.train_loop_per_worker),
            **_validation_details(trainer),
            **_data_details(trainer),
            **details,
        },
        **_script(),
    }


def _script() -> dict[str, Any]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return {"argv": list(sys.argv), "script": os.path.abspath(script) if script else None, "cells": cells.here()}


def _data_details(trainer: "DataParallelTrainer") -> dict[str, Any]:
    if not trainer.datasets:
        return {}
    from carril.train._data import details_of

    return details_of(trainer.datasets, trainer.data_config, trainer.scaling_config.max_workers)


def _data_words(trainer: "DataParallelTrainer") -> dict[str, str]:
    if not trainer.datasets:
        return {}
    from carril.train._data import words_of

    return words_of(trainer.datasets)


def _validation_details(trainer: "DataParallelTrainer") -> dict[str, Any]:
    if trainer.validation_config is None:
        return {}
    from carril.train._validation import details_of

    return details_of(trainer.validation_config)


def _check(trainer: "DataParallelTrainer") -> bytes | None:
    """What the process reads that checks a checkpoint."""
    if trainer.validation_config is None:
        return None
    from carril.train._validation import check

    function: Any = trainer.validation_config.fn
    call = {"function": check, "arguments": (function,), "of_the_user": function, "backend": None, "details": {}}
    # A checkpoint may hold objects of the script's classes, which the function need not mention.
    return dump_call({**call, "classes": script_classes(), **_script()}, function, None)


class _Watch(Follower):
    """Follows one run to its end."""

    def __init__(self, trainer: "DataParallelTrainer", run: "Run") -> None:
        self._trainer = trainer
        self._filesystem = spec.storage_filesystem(trainer.run_config)
        self._callbacks = Callbacks(callbacks_of(trainer.run_config.callbacks, trainer.backend_config))
        self._callbacks.context = RunContext(
            run_id=run.run_id,
            run_config=trainer.run_config,
            train_loop_config=trainer.train_loop_config,
            scaling_config=trainer.scaling_config,
            backend_config=trainer.backend_config,
            dataset_config=trainer.data_config,
            name=run.name,
            path=run.path,
        )
        # Ray's scripts know `verbose=0` as a setting of Ray's own lines.
        keeps_output = spec.under_as_ray()
        self._shows_output = driver.shows_output() and (trainer.run_config.verbose > 0 or keeps_output)
        super().__init__(run, Console(run.name, run.path, trainer.run_config.verbose, keeps_output))

    @property
    def run_id(self) -> str:
        return self._run.run_id

    def follow(self, run: "Run", signals: PreemptionSignals) -> None:
        """From here on the events are those of `run`: the first one, or the same under a new head."""
        self._run = run
        run.watch(bool(self._callbacks), self._shows_output)
        signals.pass_on_to(run.preempt)

    _culprit = "a callback"

    def _of_the_user(self, raised: Exception) -> Exception | None:
        return raised.error if isinstance(raised, CallbackFailed) else None

    def _on_event(self, kind: str, event: dict[str, Any]) -> None:
        console = self._console
        if kind == "output":
            console.output(event["rank"], event["text"])
        elif kind == "progress":
            console.progress(event["iteration"], event["metrics"], event["checkpoints"], event["saved"])
        elif kind == "standing":
            console.standing(event)
        elif kind == "reported":
            self._on_reported(event)
        elif kind == "state":
            console.state(event["state"], event["reason"])
        elif kind == "started":
            console.started(event["workers"])
            self._call("on_start")
        elif kind == "warning":
            console.warning(event["text"])
        elif kind == "failed":
            if self._callbacks:
                from carril.train._failures import worker_exceptions

                self._call("after_exception", worker_exceptions(event["failures"]))
        elif kind == "restarted":
            console.restarted(event["attempt"], event["reason"])
        elif kind == "ended":
            self._ended = event

    def _on_reported(self, event: dict[str, Any]) -> None:
        metrics = as_objects(event["metrics"])
        stored = event["checkpoint"]
        checkpoint = Checkpoint.stored(stored["path"], self._filesystem) if stored else None
        # A rank that has returned before has an empty place, so that the others keep theirs.
        ranks = event["ranks"]
        self._console.progress(event["iteration"], event["metrics"], ranks=ranks)
        if checkpoint is not None:
            self._console.checkpoint(self._trainer.run_config.checkpoint_config.num_to_keep)
        by_rank = [as_objects(ranks.get(rank, {})) for rank in range(self._trainer.scaling_config.max_workers)]
        self._call("on_full_report", metrics)
        self._call("after_report", by_rank, checkpoint)
        if checkpoint is not None:
            self._call("on_checkpoint", checkpoint, metrics)

    def _call(self, method: str, *arguments: Any) -> None:
        # After one has failed the run is on its way out, and the others have nothing to act on.
        if self._callbacks and self._driver_error is None:
            with self._console.paused():
                self._callbacks.call(method, *arguments)

    def conclude(self, client: "Client", ended: dict[str, Any] | None, keeps_automatic_fields: bool) -> Result:
        if self._interrupts:
            if ended is not None:
                self._tell_of_the_interrupt(ended, keeps_automatic_fields)
                self._console.failed(ended)
            raise KeyboardInterrupt
        if ended is None:
            raise InternalError("the head closed the event stream before the run ended")
        result = self._result(ended, keeps_automatic_fields)
        if self._driver_error is None and ended["status"] == "finished":
            # Empty for None, and for every rank but 0 unless all of them were asked.
            values = [loads(client.get_blob(value)) if value else None for value in ended["return_values"]]
            if self._trainer.datasets:
                from carril.train._data import without_notes

                values, warnings = without_notes(values)
                for warning in warnings:
                    self._console.warning(warning)
            result.return_value, result._rank_values = values[0], values
        error = self._error(ended)
        result.error = error
        try:
            self._call("on_end", result)
        except CallbackFailed as failed:
            # A failure of the run itself says more than one of a callback that heard of it.
            error = error if error is not None else _controller_error(failed.error)
        if error is not None and ended["status"] != "finished":
            self._console.failed(ended)
            raise error
        # Also where a callback has failed while the run came to its end: there is nothing to resume.
        self._console.finished(ended)
        if error is not None:
            raise error
        return result

    def _tell_of_the_interrupt(self, ended: dict[str, Any], keeps_automatic_fields: bool) -> None:
        """A callback may have something open elsewhere, which would stay open."""
        if not self._callbacks:
            return
        result = self._result(ended, keeps_automatic_fields)
        result.error = self._error(ended)
        try:
            self._call("on_end", result)
        except CallbackFailed as failed:
            self._console.warning(f"a callback failed at the end: {type(failed.error).__name__}: {failed.error}")

    def _error(self, ended: dict[str, Any]) -> CarrilError | None:
        failed, status = self._driver_error, ended["status"]
        if failed is not None and status != "failed":
            return _controller_error(failed)
        if status == "finished":
            return None
        from carril.train._failures import group_error

        error = group_error(ended)
        if failed is not None:
            # The run failed first: that is the cause, also where a callback failed at the news.
            error.add_note(f"a callback failed as well: {type(failed).__name__}: {failed}")
        return error

    def _result(self, ended: dict[str, Any], keeps_automatic_fields: bool) -> Result:
        metrics = None
        if ended["iterations"] and ended["metrics"] is not None:
            own = None if keeps_automatic_fields else ended["ranks"].get(0, {})
            metrics = Metrics(reported(as_objects(ended["metrics"]), own))
        checkpoints = [
            (
                Checkpoint.stored(stored["path"], self._filesystem),
                reported(as_objects(stored["metrics"]), None if keeps_automatic_fields else stored["own"]),
            )
            for stored in sorted(ended["checkpoints"], key=lambda stored: int(stored["iteration"]))
        ]
        score = self._trainer.run_config.checkpoint_config
        return Result(
            metrics=metrics,
            checkpoint=checkpoints[-1][0] if checkpoints else None,
            path=self._run.path,
            best_checkpoints=in_order(checkpoints, score.checkpoint_score_attribute, score.checkpoint_score_order),
            restarts=ended["restarts"],
            _filesystem=self._filesystem,
        )


def _controller_error(cause: Exception) -> CarrilError:
    from carril.train._failures import controller_error

    return controller_error(cause)
