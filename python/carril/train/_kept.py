"""Rank 0's last checkpoint in a run of the imperative form: noticed when it is made, handed over at the end.

A script of that form need not report: what its function has made last, by whichever way, is what
`Trainer.save_checkpoint()` returns. A checkpoint that was reported is among the run's own; any other becomes the
directory of the run that the driver has named: by a rename where the directory was ours, otherwise as a copy, and in
storage that is not a local path by an upload.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from carril.train import _session

if TYPE_CHECKING:
    from carril.train._checkpoint import Checkpoint
    from carril.train._places import Place


class LastCheckpoint:
    """The last checkpoint that was made in this process and not reported since."""

    def __init__(self) -> None:
        self._made: Checkpoint | None = None
        self._best: tuple[float, Checkpoint] | None = None

    def __call__(self, checkpoint: "Checkpoint", reported: bool) -> None:
        # Held, so that the directory of `from_dict` stays until there is a newer one.
        self._made = None if reported else checkpoint

    def saved(self, checkpoint: "Checkpoint", score: float | None) -> None:
        """One with a score: the best of them is kept beside the last."""
        if score is not None and (self._best is None or score >= self._best[0]):
            self._best = (score, checkpoint)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sees every checkpoint that is made in the meantime."""
        _session.watch_checkpoints(self)
        try:
            yield
        finally:
            _session.watch_checkpoints(None)

    def copy(self) -> "Checkpoint | None":
        """The checkpoint as one of its own, for whoever is in the same process."""
        made = self._still_there()
        return made if made is None or made.is_temporary else _temporary_copy(made)

    def hand_over(self, run_directory: str, name: str) -> None:
        """Makes it the directory `name` of the run, and the best one another."""
        made = self._still_there()
        if made is None:
            return
        if self._best is not None and self._best[1] is not made:
            from carril.train._imperative import best_name

            self._put(self._best[1], run_directory, best_name(name))
        self._put(made, run_directory, name)

    @staticmethod
    def _put(made: "Checkpoint", run_directory: str, name: str) -> None:
        import shutil

        source = made if made.is_temporary else _temporary_copy(made)
        elsewhere = _storage_elsewhere(name)
        if elsewhere is not None:
            elsewhere.upload(source.path)
            return
        target = os.path.join(run_directory, name)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(source.path, target)

    def _still_there(self) -> "Checkpoint | None":
        _session.watch_checkpoints(None)
        made, self._made = self._made, None
        if made is not None and not made.exists():
            print(
                f"carril: warning: the last checkpoint's directory `{made.path}` is gone, so that `save_checkpoint()` "
                "cannot return it\nhint: report the checkpoint, or leave the directory until the function ends",
                file=sys.stderr,
            )
            return None
        return made


def _storage_elsewhere(name: str) -> "Place | None":
    """The place of this name in the run's storage; None if that is the run's local directory."""
    session, filesystem = _session.entered(), _session.storage_filesystem()
    if session is None or not _session.is_stored(session):
        return None
    from carril.train._locations import is_uri, joined
    from carril.train._places import place

    if filesystem is None and not is_uri(session.storage):
        return None
    return place(joined(session.storage, name), filesystem)


def _temporary_copy(checkpoint: "Checkpoint") -> "Checkpoint":
    """Without the manifest, by which a directory of a run would count as a checkpoint that was reported."""
    copy = checkpoint._temporary()
    checkpoint.to_directory(copy.path)
    return copy


def save_checkpoint(**values: Any) -> None:
    """Rank 0's values become the checkpoint that `Trainer.save_checkpoint()` returns. Other ranks' are ignored."""
    session = _session.current("save_checkpoint()")
    if "keep_last_checkpoint" not in _session.details():
        from carril.exceptions import NotAvailableError

        raise NotAvailableError(
            "`save_checkpoint()` is for functions that `Trainer.run()` runs",
            hints=["with `fit()`, report it: `report(metrics, checkpoint=Checkpoint.from_dict(values))`"],
        )
    if session.rank == 0:
        from carril.train._checkpoint import Checkpoint

        checkpoint = Checkpoint.from_dict(values)
        witness = _session.witness()
        if isinstance(witness, LastCheckpoint):
            witness.saved(checkpoint, _score(values))


def _score(values: dict[str, Any]) -> float | None:
    """How good a checkpoint is by the run's `CheckpointConfig`; None where that says nothing of it."""
    name, order = _session.details().get("checkpoint_score") or (None, "max")
    value = values.get(name) if name else None
    # NaN is worse than anything.
    if not isinstance(value, (int, float)) or value != value:
        return None
    return -float(value) if order == "min" else float(value)


def load_checkpoint() -> dict[str, Any] | None:
    """The dict of the newest checkpoint, of this run or of the one that it began from; None if there is none."""
    checkpoint = _session.get_checkpoint()
    return None if checkpoint is None else checkpoint.to_dict()
