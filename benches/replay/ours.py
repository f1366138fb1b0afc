"""From `fit()` to the function running again, in a run that has 10,000 checkpoints behind it, all of them kept.

The head replays the journal, looks at every manifest and reads the newest checkpoint in full. Beside it the same with
one checkpoint, which is what going on costs in any case.
"""

import contextlib
import json
import os
import tempfile
import time

from carril import train

CHECKPOINTS = int(os.environ.get("BENCH_CHECKPOINTS", "10000"))


def function(config: dict[str, int]) -> float:
    if train.get_checkpoint() is not None:
        return time.time()
    directory = tempfile.mkdtemp()
    with open(os.path.join(directory, "weights"), "w") as file:
        file.write("w" * 1000)
    checkpoint = train.Checkpoint.from_directory(directory)
    for step in range(config["checkpoints"]):
        train.report({"step": step, "loss": 1.0}, checkpoint=checkpoint)
    raise RuntimeError("on purpose")


def goes_on(checkpoints: int) -> float:
    trainer = train.DataParallelTrainer(
        function,
        train_loop_config={"checkpoints": checkpoints},
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(name=f"run-{checkpoints}", storage_path=os.environ["BENCH_STORAGE"], verbose=0),
    )
    with contextlib.suppress(train.WorkerGroupError):
        trainer.fit()
    began = time.time()
    return trainer.fit().return_value - began


one = goes_on(1)
print("BENCH " + json.dumps({"seconds": [goes_on(CHECKPOINTS)], "one": one}))
