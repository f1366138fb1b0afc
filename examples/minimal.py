"""The least there is: a function, two workers, a result. It needs no package but carril.

Run it with `python examples/minimal.py`.
"""

from carril import train


def halve(config: dict) -> str:
    """What every worker runs. What rank 0 returns is the result's `return_value`."""
    context = train.get_context()
    value = config["start"]
    for step in range(config["steps"]):
        value = value / 2
        train.report({"step": step, "value": value})
    return f"rank {context.get_world_rank()} of {context.get_world_size()} got to {value}"


if __name__ == "__main__":
    trainer = train.DataParallelTrainer(
        halve,
        train_loop_config={"start": 1024, "steps": 5},
        scaling_config=train.ScalingConfig(num_workers=2),
    )
    result = trainer.fit()
    print(
        f"value {result.metrics['value']} after {result.metrics['training_iteration']} reports: {result.return_value}"
    )
