"""What a channel's query may call: Spark's own functions but for some, and the reasons."""

from __future__ import annotations

DISTANCE = "distance_km"
"""The one function of ours: see `spatial`."""

_OUTSIDE = "it reaches outside of the datasets"
_CHANCE = "results must not depend on chance or on how data is spread over machines"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        "java_method reflect try_reflect input_file_name input_file_block_start input_file_block_length read_files "
        "from_protobuf to_protobuf from_avro to_avro schema_of_avro current_catalog current_database current_schema "
        "current_path current_user session_user user version identifier python_worker_logs sql_keywords collations "
        "measure".split(),
        _OUTSIDE,
    ),
    **dict.fromkeys(
        "rand random randn randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id".split(), _CHANCE
    ),
    **dict.fromkeys("window session_window window_time".split(), "executions are the windows of a channel"),
}
"""Names of functions that are refused, and why."""

AGGREGATES = frozenset(
    "any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine "
    "array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or "
    "collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop covar_samp every first "
    "first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint "
    "kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float "
    "kurtosis last last_value listagg max max_by mean median min min_by mode percentile percentile_approx "
    "percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx "
    "regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum "
    "theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double "
    "tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double "
    "tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum".split()
)
"""Functions that make one value out of many rows, unless they stand before OVER."""

GENERATORS = frozenset(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode "
    "variant_explode_outer".split()
)
"""Functions that make rows out of a value: the only ones that may stand where a table stands."""
