"""The constants of Ray that scripts use: keys of data sets, names of files and of the automatic fields of a result."""

CHECKPOINT_DIR_NAME = "checkpoint_dir_name"
CONFIG_PREFIX = "config"
DEFAULT_METRIC = "_metric"
DONE = "done"
EPISODES_THIS_ITER = "episodes_this_iter"
EPISODES_TOTAL = "episodes_total"
EVALUATION_DATASET_KEY = "evaluation"
EXPERIMENT_TAG = "experiment_tag"
EXPR_ERROR_FILE = "error.txt"
EXPR_PARAM_FILE = "params.json"
EXPR_PROGRESS_FILE = "progress.csv"
EXPR_RESULT_FILE = "result.json"
HOSTNAME = "hostname"
MODEL_KEY = "model"
NODE_IP = "node_ip"
PID = "pid"
PREPROCESSOR_KEY = "_preprocessor"
TIMESTAMP = "timestamp"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
TIMESTEPS_TOTAL = "timesteps_total"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"

AUTO_RESULT_KEYS = (
    TRAINING_ITERATION,
    TIME_TOTAL_S,
    TIME_THIS_ITER_S,
    EPISODES_TOTAL,
    TIMESTEPS_TOTAL,
    NODE_IP,
    HOSTNAME,
    PID,
    TIMESTAMP,
    TRIAL_ID,
    CHECKPOINT_DIR_NAME,
    "date",
    "time_since_restore",
    "timesteps_since_restore",
    "iterations_since_restore",
    "config",
    "warmup_time",
)
