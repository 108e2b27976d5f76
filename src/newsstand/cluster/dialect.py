"""Spark SQL read into a tree and written again, as close to what stood there as can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from newsstand.errors import BadQuery


class AsWritten(Spark):
    """Spark 4's SQL with every function called by the name that was written: none is turned into another."""

    class Tokenizer(Spark.Tokenizer):
        """Two quotes in a string are one quote, as in Spark 4."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        """No function is known by name but those with a syntax of their own, such as CAST."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}


DEEPEST = 32
"""How deep parentheses, brackets, CASE and prefixes may be nested: reading and writing recurse."""

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
_PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.TILDE)
_FIRST = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM)


def read_query(text: str, place: str) -> exp.Query:
    """The one query that a text holds; BadQuery, with line and column where they are known, otherwise."""
    if "${" in text:
        # Spark would put a setting or a variable of its environment here, in strings, too.
        raise BadQuery(f"{place}: '${{' cannot stand in a query; write concat('$', '{{') if a string needs it")
    try:
        tokens = AsWritten().tokenize(text)
        if tokens and tokens[0].token_type not in _FIRST:
            first_word = " ".join(tokens[0].text.split())
            raise BadQuery(f"{place}: '{first_word}': a channel's query is one SELECT")
        _check_depth(tokens, place)
        with not_too_deep(place):
            statements = [tree for tree in AsWritten().parser().parse(tokens, text) if tree is not None]
    except TokenError as error:
        if isinstance(error.__cause__, RecursionError):
            raise _too_deep(place) from error
        raise BadQuery(f"{place}: a string, a name or a comment does not end") from error
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
        raise BadQuery(f"{place}: this is no SELECT; a channel's query is one SELECT")
    written = Counter(token.text for token in tokens if token.token_type in (TokenType.STRING, TokenType.NUMBER))
    lost = written - Counter(str(literal.this) for literal in tree.find_all(exp.Literal))
    if lost:
        raise BadQuery(
            f"{place}: what stands around {next(iter(lost))!r} was not understood; write it another way"
        )
    return tree


@contextmanager
def not_too_deep(place: str) -> Iterator[None]:
    """Raise BadQuery in place of a RecursionError, and of an error of the parser that was caused by one."""
    try:
        yield
    except RecursionError:
        raise _too_deep(place) from None
    except SqlglotError as error:
        if isinstance(error.__cause__, RecursionError):
            raise _too_deep(place) from None
        raise


def _too_deep(place: str) -> BadQuery:
    return BadQuery(f"{place}: nested too deep; at most {DEEPEST} levels: use inner queries or shorter chains")


def _check_depth(tokens: Sequence[Token], place: str) -> None:
    depth = prefixes = 0
    for token in tokens:
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _CLOSING:
            depth = max(0, depth - 1)
        if depth + prefixes > DEEPEST:
            raise BadQuery(f"{place}: line {token.line}, column {token.col}: nested more than {DEEPEST} deep")


def read_expression(text: str) -> exp.Expr:
    """The tree of an expression of our own."""
    tree = AsWritten().parse(f"SELECT {text}")[0]
    assert isinstance(tree, exp.Select)
    expression: exp.Expr = tree.expressions[0]
    return expression.pop()


def write_sql(tree: exp.Expr) -> str:
    """The text of a tree, in one line and without comments."""
    return tree.sql(dialect=AsWritten, normalize_functions=False, comments=False)
