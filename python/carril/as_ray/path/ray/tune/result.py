"""`ray.tune.result`: the names of the automatic fields of a result, as scripts use them."""

CONFIG_PREFIX = "config"
DEFAULT_METRIC = "_metric"
DONE = "done"
EPISODES_TOTAL = "episodes_total"
EXPERIMENT_TAG = "experiment_tag"
HOSTNAME = "hostname"
NODE_IP = "node_ip"
PID = "pid"
TIMESTEPS_TOTAL = "timesteps_total"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"

__all__ = [
    "CONFIG_PREFIX",
    "DEFAULT_METRIC",
    "DONE",
    "EPISODES_TOTAL",
    "EXPERIMENT_TAG",
    "HOSTNAME",
    "NODE_IP",
    "PID",
    "TIMESTEPS_TOTAL",
    "TIME_THIS_ITER_S",
    "TIME_TOTAL_S",
    "TRAINING_ITERATION",
    "TRIAL_ID",
]
