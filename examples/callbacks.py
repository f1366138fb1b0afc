"""Follows a run from the driver: a callback that sees every report of every rank as it comes, and stops nothing.

The callback's methods run in this process, in the thread that called `fit()`. A callback that is slow slows the run,
and loses nothing.

Run it with `python examples/callbacks.py`.
"""

from carril import train


class Watch(train.UserCallback):
    """Remembers the smallest loss of all ranks and says which rank had it."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.rank = -1

    def on_start(self, run_context: object) -> None:
        print("the run begins")

    def after_report(self, run_context: object, metrics: list[dict], checkpoint: train.Checkpoint | None) -> None:
        for rank, reported in enumerate(metrics):
            if reported["loss"] < self.best:
                self.best, self.rank = reported["loss"], rank

    def after_exception(self, run_context: object, worker_exceptions: dict[int, Exception]) -> None:
        print(f"ranks {sorted(worker_exceptions)} failed")

    def on_end(self, run_context: object, result: object) -> None:
        print("the run has ended")


def descend(config: dict) -> None:
    rank = train.get_context().get_world_rank()
    loss = 1.0
    for _ in range(config["steps"]):
        loss *= 0.9 - 0.1 * rank
        train.report({"loss": loss})


if __name__ == "__main__":
    watch = Watch()
    trainer = train.DataParallelTrainer(
        descend,
        train_loop_config={"steps": 20},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(callbacks=[watch]),
    )
    result = trainer.fit()
    print(f"rank 0 ended at loss {result.metrics['loss']:.4f}; the best was {watch.best:.4f} of rank {watch.rank}")
