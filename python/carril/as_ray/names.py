"""Which names the package `ray` has under `carril as-ray`: the one place where a name is added.

For each module of `ray`, the modules of ours that its names come from: names by themselves, `theirs=ours` where ours is
called otherwise, and `*` for all that ours lists in `__all__` (without the submodules that are in the table: `from
ray.train import *` must not import torch). What an earlier line of a module has, a later `*` does not bring again.

What Ray has and is not here is in `absent`, with what to use instead; which generation of Ray had a name is in
`generations`. The tables in `docs/reference/ray` are made from all three.
"""

MODULES: dict[str, dict[str, str]] = {
    "ray": {
        "carril": "available_resources cluster_resources is_initialized nodes shutdown",
        "carril.as_ray.core": (
            "ObjectRef cancel get get_actor get_gpu_ids get_runtime_context init kill method put remote timeline wait"
        ),
    },
    "ray._version": {"carril.as_ray.version": "commit version"},
    "ray.air": {
        "carril.as_ray.legacy": "CheckpointConfig FailureConfig RunConfig ScalingConfig",
        "carril.train": "Checkpoint Result",
    },
    "ray.air.checkpoint": {"carril.train": "Checkpoint"},
    "ray.air.config": {"carril.as_ray.legacy": "CheckpointConfig FailureConfig RunConfig ScalingConfig"},
    "ray.air.constants": {
        "carril.train": "TRAIN_DATASET_KEY",
        "carril.as_ray.constants": (
            "EVALUATION_DATASET_KEY MODEL_KEY PREPROCESSOR_KEY TIMESTAMP TIME_THIS_ITER_S TRAINING_ITERATION"
        ),
    },
    "ray.air.integrations": {},
    "ray.air.integrations.mlflow": {"carril.integrations.mlflow": "MLflowLoggerCallback setup_mlflow"},
    "ray.air.integrations.wandb": {"carril.integrations.wandb": "WandbLoggerCallback setup_wandb"},
    "ray.air.result": {"carril.train": "Result"},
    "ray.air.session": {
        "carril.as_ray.session": (
            "get_checkpoint get_dataset_shard get_experiment_name get_local_rank get_local_world_size "
            "get_metadata get_node_rank get_run_id get_storage get_trial_dir get_trial_id get_trial_name "
            "get_trial_resources get_world_rank get_world_size report"
        ),
    },
    "ray.air.util": {},
    "ray.cloudpickle": {
        "cloudpickle": "CloudPickler Pickler dump dumps load loads register_pickle_by_value unregister_pickle_by_value"
    },
    "ray.data": {
        "carril.data": (
            "ActorPoolStrategy DataContext DataIterator Dataset Datasink Datasource ExecutionOptions ExecutionResources "
            "FileShuffleConfig FilenameProvider MaterializedDataset ReadTask SaveMode Schema TaskPoolStrategy from_arrow "
            "from_blocks from_huggingface from_items from_numpy from_pandas from_torch range range_tensor read_binary_files "
            "read_csv read_datasource read_images read_json read_numpy read_parquet read_text read_tfrecords "
            "read_webdataset DatasetContext=DataContext DatasetIterator=DataIterator"
        ),
    },
    "ray.data.block": {"carril.as_ray.block": "Block BlockMetadata"},
    "ray.data.context": {"carril.data": "DataContext DatasetContext=DataContext"},
    "ray.data.dataset": {"carril.data": "Dataset MaterializedDataset Schema"},
    "ray.data.datasource": {
        "carril.data": (
            "Datasink Datasource FileShuffleConfig FilenameProvider PartitionStyle Partitioning PathPartitionFilter "
            "PathPartitionParser ReadTask SaveMode WriteResult"
        ),
    },
    "ray.data.datasource.partitioning": {"carril.data.partitioning": "*"},
    "ray.data.exceptions": {"carril.exceptions": "UserCodeException=UserCodeError"},
    "ray.data.iterator": {"carril.data": "DataIterator"},
    "ray.exceptions": {"carril.as_ray.exceptions": "*"},
    "ray.train": {
        "carril.as_ray.older_train": "*",
        "carril.as_ray.older_trainer": "*",
        "carril.as_ray.train_callbacks": "TrainingCallback",
        "carril.train": "*",
    },
    "ray.train._checkpoint": {"carril.train": "Checkpoint"},
    "ray.train.backend": {"carril.as_ray.backend": "Backend", "carril.train": "BackendConfig"},
    "ray.train.base_trainer": {"carril.train": "BaseTrainer=DataParallelTrainer TrainingFailedError"},
    "ray.train.callbacks": {
        "carril.as_ray.train_callbacks": "*",
        "carril.as_ray.train_mlflow": "MLflowLoggerCallback",
    },
    "ray.train.callbacks.callback": {"carril.as_ray.train_callbacks": "TrainingCallback"},
    "ray.train.callbacks.logging": {
        "carril.as_ray.train_callbacks": "JsonLoggerCallback PrintCallback TBXLoggerCallback",
        "carril.as_ray.train_mlflow": "MLflowLoggerCallback",
    },
    "ray.train.collective": {"carril.train.collective": "barrier broadcast_from_rank_zero"},
    "ray.train.constants": {
        "carril.train": "TRAIN_DATASET_KEY",
        "carril.as_ray.constants": "EVALUATION_DATASET_KEY MODEL_KEY",
    },
    "ray.train.context": {"carril.train": "TrainContext get_context"},
    "ray.train.data_parallel_trainer": {"carril.train": "DataParallelTrainer"},
    "ray.train.torch": {"carril.train.torch": "*"},
    "ray.train.torch.config": {"carril.train.torch": "TorchConfig"},
    "ray.train.torch.torch_checkpoint": {"carril.train.torch": "TorchCheckpoint"},
    "ray.train.torch.torch_trainer": {"carril.train.torch": "TorchTrainer"},
    "ray.train.trainer": {
        "carril.as_ray.older_trainer": "Trainer",
        "carril.train": "BaseTrainer=DataParallelTrainer",
    },
    "ray.train.v2": {},
    "ray.train.v2.api": {},
    "ray.train.v2.api.callback": {"carril.train": "UserCallback"},
    "ray.train.v2.api.config": {"carril.train": "CheckpointConfig FailureConfig LoggingConfig RunConfig ScalingConfig"},
    "ray.train.v2.api.context": {"carril.train": "TrainContext"},
    "ray.train.v2.api.data_parallel_trainer": {"carril.train": "DataParallelTrainer"},
    "ray.train.v2.api.exceptions": {
        "carril.exceptions": "RayTrainError=CarrilError",
        "carril.train": "ControllerError PreemptionError TrainingFailedError WorkerGroupError",
    },
    "ray.train.v2.api.preemption": {"carril.train": "PreemptionInfo"},
    "ray.train.v2.api.report_config": {"carril.train": "CheckpointConsistencyMode CheckpointUploadMode"},
    "ray.train.v2.api.reported_checkpoint": {"carril.train": "ReportedCheckpoint ReportedCheckpointStatus"},
    "ray.train.v2.api.result": {"carril.train": "Result"},
    "ray.train.v2.api.train_fn_utils": {
        "carril.train": (
            "get_all_reported_checkpoints get_checkpoint get_context get_dataset_shard get_preemption_info report"
        ),
    },
    "ray.train.v2.api.validation_config": {"carril.train": "ValidationConfig ValidationFn ValidationTaskConfig"},
    "ray.tune": {
        "carril.as_ray.older_tune": (
            "checkpoint_dir get_trial_dir get_trial_id get_trial_name get_trial_resources is_session_enabled report"
        ),
        "carril.tune": "*",
    },
    "ray.tune.analysis": {"carril.tune": "ExperimentAnalysis"},
    "ray.tune.analysis.experiment_analysis": {"carril.tune": "ExperimentAnalysis"},
    "ray.tune.callback": {"carril.tune.callback": "Callback"},
    "ray.tune.context": {"carril.tune": "TuneContext get_context"},
    "ray.tune.error": {"carril.tune": "TuneError"},
    "ray.tune.execution": {},
    "ray.tune.execution.placement_groups": {"carril.tune": "PlacementGroupFactory"},
    "ray.tune.experiment": {"carril.tune": "Experiment", "carril.tune.schedulers._trial": "Trial"},
    "ray.tune.experiment.experiment": {"carril.tune": "Experiment"},
    "ray.tune.experiment.trial": {"carril.tune.schedulers._trial": "Trial"},
    "ray.tune.integration": {},
    "ray.tune.integration.keras": {"carril.tune.integration.keras": "TuneReportCallback TuneReportCheckpointCallback"},
    "ray.tune.integration.lightgbm": {
        "carril.tune.integration.lightgbm": "TuneReportCallback TuneReportCheckpointCallback",
    },
    "ray.tune.integration.pytorch_lightning": {
        "carril.tune.integration.pytorch_lightning": "TuneReportCallback TuneReportCheckpointCallback",
    },
    "ray.tune.integration.ray_train": {"carril.tune.integration.ray_train": "TuneReportCallback"},
    "ray.tune.integration.xgboost": {
        "carril.tune.integration.xgboost": "TuneReportCallback TuneReportCheckpointCallback",
    },
    "ray.tune.logger": {"carril.as_ray.tune_utils": "pretty_print", "carril.tune.logger": "*"},
    "ray.tune.logger.csv": {"carril.tune.logger": "CSVLoggerCallback"},
    "ray.tune.logger.json": {"carril.tune.logger": "JsonLoggerCallback"},
    "ray.tune.logger.tensorboardx": {"carril.tune.logger": "TBXLoggerCallback"},
    "ray.tune.logger.logger": {"carril.as_ray.tune_utils": "pretty_print", "carril.tune.logger": "LoggerCallback"},
    "ray.tune.progress_reporter": {"carril.tune": "CLIReporter JupyterNotebookReporter ProgressReporter"},
    "ray.tune.registry": {
        "carril.tune": "register_env register_trainable",
        "carril.tune.trainable.registry": "get_trainable_cls=get_trainable",
    },
    "ray.tune.result": {
        "carril.as_ray.constants": (
            "AUTO_RESULT_KEYS CHECKPOINT_DIR_NAME CONFIG_PREFIX DEFAULT_METRIC DONE EPISODES_THIS_ITER EPISODES_TOTAL "
            "EXPERIMENT_TAG EXPR_ERROR_FILE EXPR_PARAM_FILE EXPR_PROGRESS_FILE EXPR_RESULT_FILE HOSTNAME NODE_IP PID "
            "TIMESTAMP TIMESTEPS_THIS_ITER TIMESTEPS_TOTAL TIME_THIS_ITER_S TIME_TOTAL_S TRAINING_ITERATION TRIAL_ID"
        ),
    },
    "ray.tune.result_grid": {"carril.tune": "ResultGrid"},
    "ray.tune.sample": {"carril.tune.search.sample": "*"},
    "ray.tune.schedulers": {"carril.tune.schedulers": "*"},
    "ray.tune.schedulers.async_hyperband": {
        "carril.tune.schedulers.async_hyperband": "ASHAScheduler AsyncHyperBandScheduler",
    },
    "ray.tune.schedulers.hb_bohb": {"carril.tune.schedulers.hb_bohb": "HyperBandForBOHB"},
    "ray.tune.schedulers.hyperband": {"carril.tune.schedulers.hyperband": "HyperBandScheduler"},
    "ray.tune.schedulers.median_stopping_rule": {"carril.tune.schedulers.median_stopping_rule": "MedianStoppingRule"},
    "ray.tune.schedulers.pb2": {"carril.tune.schedulers.pb2": "PB2"},
    "ray.tune.schedulers.pbt": {"carril.tune.schedulers.pbt": "PopulationBasedTraining PopulationBasedTrainingReplay"},
    "ray.tune.schedulers.resource_changing_scheduler": {
        "carril.tune.schedulers.resource_changing_scheduler": (
            "DistributeResources DistributeResourcesToTopJob ResourceChangingScheduler"
        ),
    },
    "ray.tune.schedulers.trial_scheduler": {"carril.tune.schedulers.trial_scheduler": "FIFOScheduler TrialScheduler"},
    "ray.tune.search": {"carril.tune": "grid_search", "carril.tune.search": "*"},
    "ray.tune.search.ax": {"carril.tune.search.ax": "AxSearch"},
    "ray.tune.search.basic_variant": {"carril.tune.search.basic_variant": "BasicVariantGenerator"},
    "ray.tune.search.bayesopt": {"carril.tune.search.bayesopt": "BayesOptSearch"},
    "ray.tune.search.bohb": {"carril.tune.search.bohb": "TuneBOHB"},
    "ray.tune.search.concurrency_limiter": {"carril.tune.search.concurrency_limiter": "ConcurrencyLimiter"},
    "ray.tune.search.hebo": {"carril.tune.search.hebo": "HEBOSearch"},
    "ray.tune.search.hyperopt": {"carril.tune.search.hyperopt": "HyperOptSearch"},
    "ray.tune.search.nevergrad": {"carril.tune.search.nevergrad": "NevergradSearch"},
    "ray.tune.search.optuna": {"carril.tune.search.optuna": "OptunaSearch"},
    "ray.tune.search.repeater": {"carril.tune.search.repeater": "TRIAL_INDEX Repeater"},
    "ray.tune.search.sample": {"carril.tune.search.sample": "*"},
    "ray.tune.search.searcher": {"carril.tune.search.searcher": "Searcher"},
    "ray.tune.search.zoopt": {"carril.tune.search.zoopt": "ZOOptSearch"},
    "ray.tune.stopper": {"carril.tune.stopper": "*"},
    "ray.tune.stopper.experiment_plateau": {"carril.tune.stopper": "ExperimentPlateauStopper"},
    "ray.tune.stopper.function_stopper": {"carril.tune.stopper": "FunctionStopper"},
    "ray.tune.stopper.maximum_iteration": {"carril.tune.stopper": "MaximumIterationStopper"},
    "ray.tune.stopper.noop": {"carril.tune.stopper": "NoopStopper"},
    "ray.tune.stopper.stopper": {"carril.tune.stopper": "CombinedStopper Stopper"},
    "ray.tune.stopper.timeout": {"carril.tune.stopper": "TimeoutStopper"},
    "ray.tune.stopper.trial_plateau": {"carril.tune.stopper": "TrialPlateauStopper"},
    "ray.tune.suggest": {"carril.tune.search": "*"},
    "ray.tune.suggest.ax": {"carril.tune.search.ax": "AxSearch"},
    "ray.tune.suggest.basic_variant": {"carril.tune.search.basic_variant": "BasicVariantGenerator"},
    "ray.tune.suggest.bayesopt": {"carril.tune.search.bayesopt": "BayesOptSearch"},
    "ray.tune.suggest.bohb": {"carril.tune.search.bohb": "TuneBOHB"},
    "ray.tune.suggest.hebo": {"carril.tune.search.hebo": "HEBOSearch"},
    "ray.tune.suggest.hyperopt": {"carril.tune.search.hyperopt": "HyperOptSearch"},
    "ray.tune.suggest.nevergrad": {"carril.tune.search.nevergrad": "NevergradSearch"},
    "ray.tune.suggest.optuna": {"carril.tune.search.optuna": "OptunaSearch"},
    "ray.tune.suggest.repeater": {"carril.tune.search.repeater": "TRIAL_INDEX Repeater"},
    "ray.tune.suggest.suggestion": {"carril.tune.search": "ConcurrencyLimiter Searcher"},
    "ray.tune.suggest.zoopt": {"carril.tune.search.zoopt": "ZOOptSearch"},
    "ray.tune.syncer": {"carril.tune": "SyncConfig"},
    "ray.tune.trainable": {
        "carril.tune.trainable": "PlacementGroupFactory Trainable TrainingResult with_parameters with_resources",
    },
    "ray.tune.trainable.trainable": {"carril.tune.trainable": "Trainable"},
    "ray.tune.trainable.util": {"carril.tune.trainable": "with_parameters with_resources"},
    "ray.tune.trial": {"carril.tune.schedulers._trial": "Trial"},
    "ray.tune.tune": {"carril.tune": "run run_experiments"},
    "ray.tune.tune_config": {"carril.tune": "ResumeConfig TuneConfig"},
    "ray.tune.tuner": {"carril.tune": "Tuner"},
    "ray.tune.utils": {"carril.as_ray.tune_utils": "*"},
    "ray.tune.utils.placement_groups": {"carril.tune": "PlacementGroupFactory"},
    "ray.tune.utils.util": {"carril.as_ray.tune_utils": "*"},
    "ray.util": {"carril.as_ray.core": "get_node_ip_address"},
    "ray.util.annotations": {"carril.as_ray.annotations": "*"},
}
