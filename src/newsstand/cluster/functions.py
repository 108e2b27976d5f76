"""What a channel's query may call: Spark's own functions but for some, and the reasons."""

from __future__ import annotations

DISTANCE = "distance_km"
"""The one function of ours: see `spatial`."""

_OUTSIDE = "it reaches outside of the datasets"
_CHANCE = "results must not depend on chance or on how data is spread over machines"
_WINDOWS = "executions are the windows of a channel"
_PUBLISH = "compute the value before you publish, and publish it as a field"
_CONSTANT = "write the value as a string, or as a :parameter"
_HASH = "write hash(_seq), which is the same every time"
_NOTHING = "there is no alternative"

_INSTEAD: dict[str, dict[str, str]] = {
    _OUTSIDE: {
        **dict.fromkeys(["java_method", "reflect", "try_reflect"], _PUBLISH),
        **dict.fromkeys(
            ["input_file_name", "input_file_block_start", "input_file_block_length"],
            "write _seq or _at, which say where a record stands in its dataset",
        ),
        "read_files": "publish the records of the files to a dataset, and read the dataset",
        **dict.fromkeys(
            ["from_protobuf", "from_avro", "schema_of_avro", "from_xml", "schema_of_xml"],
            "decode the value before you publish, or publish JSON and write from_json",
        ),
        **dict.fromkeys(["to_protobuf", "to_avro"], "write to_json, or select the columns: a result is JSON"),
        **dict.fromkeys(
            [
                "current_catalog",
                "current_database",
                "current_schema",
                "current_path",
                "current_user",
                "session_user",
                "user",
                "version",
            ],
            _CONSTANT,
        ),
        "identifier": "write the name itself",
        "measure": "write the aggregate itself, such as sum(lat)",
        **dict.fromkeys(["python_worker_logs", "sql_keywords", "collations"], _NOTHING),
    },
    _CHANCE: {
        **dict.fromkeys(["rand", "random", "randn", "randstr", "uniform"], _HASH),
        "uuid": "publish an identifier as a field, or write sha2(cast(_seq AS string), 256)",
        "shuffle": "write array_sort",
        "monotonically_increasing_id": "write _seq, or row_number() OVER (ORDER BY _seq)",
        "spark_partition_id": "write pmod(hash(_seq), 8) for one of eight parts",
    },
    _WINDOWS: {
        "window": "write GROUP BY date_trunc('HOUR', _at), or set the channel's period",
        "session_window": "write lag(_at) OVER (ORDER BY _seq) and compare it with _at",
        "window_time": "write date_trunc('HOUR', _at)",
    },
}

REFUSED: dict[str, str] = {
    name: f"{why}; {instead}" for why, names in _INSTEAD.items() for name, instead in names.items()
}
"""Names of functions that are refused: why, and what to write instead."""

AGGREGATES = frozenset(
    [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "collect_union",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "schema_of_variant_agg",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
        "tuple_sketch_agg_double",
        "tuple_sketch_agg_integer",
        "tuple_union_agg_double",
        "tuple_union_agg_integer",
        "var_pop",
        "var_samp",
        "variance",
        "vector_avg",
        "vector_sum",
    ]
)
"""Functions that make one value out of many rows, unless they stand before OVER."""

GENERATORS = frozenset(
    [
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "variant_explode",
        "variant_explode_outer",
    ]
)
"""Functions that make rows out of a value: the only ones that may stand where a table stands."""
