"""The SQL of channels: the functions that a query may call, parsing into a tree, and generating SQL from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from newsstand.errors import BadQuery


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DISTANCE = "distance_km"
"""The function that Newsstand adds; see `spatial`."""

_OUTSIDE = "it reads data outside of the datasets"
_CHANCE = "results must be deterministic and independent of the partitioning of data"
_WINDOWS = "executions are the windows of a channel"

_REJECTED_CALLS = (
    (
        _OUTSIDE,
        "compute the value before you publish, and publish it as a field",
        "java_method reflect try_reflect",
    ),
    (
        _OUTSIDE,
        "write _seq or _at, which identify the position of a record in its dataset",
        "input_file_name input_file_block_start input_file_block_length",
    ),
    (_OUTSIDE, "publish the records of the files to a dataset, and read the dataset", "read_files"),
    (
        _OUTSIDE,
        "decode the value before you publish, or publish JSON and write from_json",
        "from_protobuf from_avro schema_of_avro from_xml schema_of_xml",
    ),
    (_OUTSIDE, "write to_json, or select the columns: a result is JSON", "to_protobuf to_avro"),
    (
        _OUTSIDE,
        "write the value as a string, or as a :parameter",
        "current_catalog current_database current_schema current_path current_user session_user user version",
    ),
    (_OUTSIDE, "write the name itself", "identifier"),
    (_OUTSIDE, "write the aggregate itself, such as sum(lat)", "measure"),
    (_OUTSIDE, "there is no alternative", "python_worker_logs sql_keywords collations"),
    (_CHANCE, "write hash(_seq), which is deterministic", "rand random randn randstr uniform"),
    (_CHANCE, "publish an identifier as a field, or write sha2(cast(_seq AS string), 256)", "uuid"),
    (_CHANCE, "write array_sort", "shuffle"),
    (_CHANCE, "write _seq, or row_number() OVER (ORDER BY _seq)", "monotonically_increasing_id"),
    (_CHANCE, "write pmod(hash(_seq), 8) for one of eight parts", "spark_partition_id"),
    (_WINDOWS, "write GROUP BY date_trunc('HOUR', _at), or set the channel's period", "window"),
    (_WINDOWS, "write lag(_at) OVER (ORDER BY _seq) and compare it with _at", "session_window"),
    (_WINDOWS, "write date_trunc('HOUR', _at)", "window_time"),
)

REJECTED = {name: f"{why}; {instead}" for why, instead, names in _REJECTED_CALLS for name in names.split()}
"""Names of functions that are rejected: the reason, and the alternative."""

AGGREGATES = _names("""
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp
    string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance
    vector_avg vector_sum
""")
"""Functions that aggregate rows, unless they are followed by OVER."""

GENERATORS = _names("""
    explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode
    variant_explode_outer
""")
"""Functions that generate rows from a value: the only ones that are allowed in FROM."""

SYNTAX = _names("""
    cast try_cast extract interval trim substring overlay exists dateadd datediff timestampadd timestampdiff
    any current_date current_timestamp current_time
""")
"""Functions of Spark with their own syntax, which `SHOW FUNCTIONS` does not list."""


class VerbatimSpark(Spark):
    """Spark 4's SQL, which keeps the name of every function as it was written."""

    class Tokenizer(Spark.Tokenizer):
        """A tokenizer for which two quotes in a string are one quote, as in Spark 4."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        """A parser without known functions, except for those with their own syntax, such as CAST."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}


MAX_DEPTH = 32
"""Maximum depth of parentheses, brackets, CASE and prefixes: parsing and generating are recursive."""

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
_PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.TILDE)
_FIRST = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM)


def read_query(text: str, place: str) -> exp.Query:
    """Parse a text that is one query; raise BadQuery, with line and column where they are known."""
    if "${" in text:
        # Spark would substitute a setting or an environment variable here, also in strings.
        raise BadQuery(f"{place}: '${{' is not allowed in a query; write concat('$', '{{') if a string needs it")
    try:
        tokens = VerbatimSpark().tokenize(text)
        if tokens and tokens[0].token_type not in _FIRST:
            first_word = " ".join(tokens[0].text.split())
            raise BadQuery(f"{place}: '{first_word}': a channel's query is one SELECT")
        _check_depth(tokens, place)
        _reject_window(tokens, place)
        with not_too_deep(place):
            statements = [tree for tree in VerbatimSpark().parser().parse(tokens, text) if tree is not None]
    except TokenError as error:
        if isinstance(error.__cause__, RecursionError):
            raise _too_deep(place) from error
        raise BadQuery(f"{place}: a string, a name or a comment is not terminated") from error
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        where = f"line {first['line']}, column {first['col']}: " if first.get("line") else ""
        near = f" near '{' '.join(first['highlight'].split())}'" if first.get("highlight") else ""
        raise BadQuery(f"{place}: {where}{first.get('description', 'not SQL').rstrip('.')}{near}") from error
    except SqlglotError as error:
        raise BadQuery(f"{place}: {str(error).splitlines()[0]}") from error
    if not statements:
        raise BadQuery(f"{place}: the query is empty")
    if len(statements) > 1:
        raise BadQuery(f"{place}: {len(statements)} statements; a channel's query is one SELECT")
    tree = statements[0]
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        raise BadQuery(f"{place}: not a SELECT; a channel's query is one SELECT")
    written = Counter(token.text for token in tokens if token.token_type in (TokenType.STRING, TokenType.NUMBER))
    lost = written - Counter(str(literal.this) for literal in tree.find_all(exp.Literal))
    if lost:
        raise BadQuery(f"{place}: the SQL around {next(iter(lost))!r} is not supported; rewrite it")
    return tree


@contextmanager
def not_too_deep(place: str) -> Iterator[None]:
    """Raise BadQuery in place of a RecursionError, or a parser error that was caused by one."""
    try:
        yield
    except RecursionError:
        raise _too_deep(place) from None
    except SqlglotError as error:
        if isinstance(error.__cause__, RecursionError):
            raise _too_deep(place) from None
        raise


def _too_deep(place: str) -> BadQuery:
    return BadQuery(f"{place}: nested too deep; at most {MAX_DEPTH} levels: use inner queries or shorter chains")


def _check_depth(tokens: Sequence[Token], place: str) -> None:
    depth = prefixes = 0
    for token in tokens:
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _CLOSING:
            depth = max(0, depth - 1)
        if depth + prefixes > MAX_DEPTH:
            raise BadQuery(
                f"{place}: line {token.line}, column {token.col}: nested more than {MAX_DEPTH} deep; write inner "
                "queries in WITH, or fewer parentheses"
            )


def _reject_window(tokens: Sequence[Token], place: str) -> None:
    """Raise BadQuery for the function `window`, which the parser mistakes for the clause of that name."""
    for token, following in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and following.token_type == TokenType.L_PAREN:
            where = f"line {token.line}, column {token.col}"
            raise BadQuery(f"{place}: {where}: function 'window' is rejected: {REJECTED['window']}")


def read_expression(text: str) -> exp.Expr:
    """Parse an expression that Newsstand generates."""
    tree = VerbatimSpark().parse(f"SELECT {text}")[0]
    assert isinstance(tree, exp.Select)
    expression: exp.Expr = tree.expressions[0]
    return expression.pop()


def write_sql(tree: exp.Expr) -> str:
    """Generate the SQL of a tree, in one line and without comments."""
    return tree.sql(dialect=VerbatimSpark, normalize_functions=False, comments=False)
