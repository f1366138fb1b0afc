"""Settings of Ray's executor for data that have no effect here, as they are before a script sets them.

A script that reads one, sets it and puts it back afterwards finds what it found before.
"""

from typing import Any

_OFF = (
    "accurate_map_phase_timing actor_init_retry_on_errors actor_prefetcher_enabled actor_task_retry_on_errors "
    "enable_auto_log_stats enable_get_object_locations_for_metrics enable_per_node_metrics enable_rich_progress_bars "
    "enforce_schemas isolate_read_workers log_internal_stack_trace per_stage_map_timing raise_original_map_exception "
    "retried_map_errors s3_try_create_dir trace_allocations use_polars use_polars_sort use_push_based_shuffle "
    "verbose_stats_logs"
)
_ON = (
    "batch_to_block_arrow_format decoding_size_estimation enable_operator_progress_bars enable_pandas_block "
    "enable_progress_bar_name_truncation enable_tensor_extension_casting eager_free op_resource_reservation_enabled "
    "optimizer_enabled pipeline_push_based_shuffle_reduce_tasks print_on_execution_start use_arrow_tensor_v2 "
    "use_ray_tqdm use_streaming_executor"
)
_UNSET = (
    "dataset_logger_id enable_fallback_to_arrow_object_ext_type max_hash_shuffle_aggregators "
    "max_tasks_in_flight_per_actor override_object_store_memory_limit_fraction"
)

DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_OFF.split(), False),
    **dict.fromkeys(_ON.split(), True),
    **dict.fromkeys(_UNSET.split()),
    "actor_init_max_retries": 3,
    "custom_execution_callback_classes": [],
    "default_hash_shuffle_parallelism": 200,
    "execution_no_progress_timeout_s": 1800,
    "large_args_threshold": 50 << 20,
    "max_map_retries": 0,
    "memory_usage_poll_interval_s": 1,
    "min_parallelism": 200,
    "op_resource_reservation_ratio": 0.5,
    "read_op_min_num_blocks": 200,
    "retried_io_errors": [],
    "scheduling_strategy": "SPREAD",
    "scheduling_strategy_large_args": "DEFAULT",
    "streaming_read_buffer_size": 32 << 20,
    "wait_for_min_actors_s": -1,
    "warn_on_driver_memory_usage_bytes": 2 << 30,
    "write_file_retry_on_errors": [],
}
