"""The network of a client: what stands in for its proxy where a log knows no better.

Addresses are cut to a prefix (RFC 4632, RFC 4291), an IPv4 address written as IPv6 (RFC 4291, 2.5.5.2) like
the IPv4 address it is; a host name loses its first label if it has more than two.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from newsstand.errors import BadOption

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_QUAD = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9a-f]{1,4}"
_GROUPS = f"(?:{_GROUP}(?::{_GROUP})*)?"


def network(host: Column, prefix_v4: int = 24, prefix_v6: int = 48) -> Column:
    """The network's text, such as `192.0.2.0/24`, `2001:db8:1::/48` or `example.org`."""
    for option, prefix, longest in (("prefix_v4", prefix_v4, 32), ("prefix_v6", prefix_v6, 128)):
        if not 0 <= prefix <= longest:
            raise BadOption(f"{option}: {prefix} is not between 0 and {longest}")

    def of_plain(name: Column) -> Column:
        return (
            F.when(_is_v4(name), _network_v4(name, prefix_v4))
            .when(name.contains(":"), _let(_in_hexadecimal(name), of_address))
            .otherwise(_domain(name))
        )

    def of_address(address: Column) -> Column:
        return _let(
            _groups(address),
            lambda groups: F.when(_is_v6(address, groups), _network_v6(groups, prefix_v6)).otherwise(address),
        )

    plain = F.regexp_replace(F.lower(host), rf"^::ffff:(?={_QUAD}$)|%.*$|\.$", "")
    return F.when(_is_v4(host), _network_v4(host, prefix_v4)).otherwise(_let(plain, of_plain))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value computed once, however often it is named: Spark's code for it would grow large."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _is_v4(host: Column) -> Column:
    return host.rlike(f"^{_QUAD}$")


def _network_v4(quad: Column, prefix: int) -> Column:
    whole, bits = divmod(prefix, 8)
    octets = [F.substring_index(quad, ".", whole)] if whole else []
    if bits:
        octet = F.get(F.split(quad, r"\."), F.lit(whole)).try_cast("int")
        octets.append(octet.bitwiseAND(_mask(bits, 8)).cast("string"))
    octets += [F.lit("0")] * (4 - whole - bool(bits))
    return F.concat(F.concat_ws(".", *octets), F.lit(f"/{prefix}"))


def _in_hexadecimal(address: Column) -> Column:
    """The same IPv6 address, without a dotted end."""
    octets = [F.get(F.split(F.regexp_extract(address, "[^:]*$", 0), r"\."), F.lit(n)) for n in range(4)]
    end = F.format_string("%02x%02x:%02x%02x", *(octet.try_cast("int") for octet in octets))
    start = F.regexp_extract(address, "^.*:", 0)
    return F.when(address.rlike(f":{_QUAD}$"), F.concat(start, end)).otherwise(address)


def _groups(address: Column) -> Column:
    """The groups of an IPv6 address in full; more than eight if it has a `::` that stands for none."""
    halves = F.split(address, "::", 2)
    left, right = (
        F.filter(F.split(F.coalesce(F.get(halves, F.lit(half)), F.lit("")), ":"), lambda group: group != "")
        for half in (0, 1)
    )
    zeros = F.greatest(F.lit(8) - F.size(left) - F.size(right), F.lit(1))
    return F.concat(left, F.array_repeat(F.lit("0"), zeros), right)


def _is_v6(address: Column, groups: Column) -> Column:
    in_full = address.rlike(f"^(?:{_GROUP}:){{7}}{_GROUP}$")
    return in_full | (address.rlike(f"^{_GROUPS}::{_GROUPS}$") & (F.size(groups) == 8))


def _network_v6(groups: Column, prefix: int) -> Column:
    texts = []
    for place in range(-(-prefix // 16)):
        value = F.conv(F.get(groups, F.lit(place)), 16, 10).try_cast("int")
        texts.append(F.lower(F.hex(value.bitwiseAND(_mask(min(16, prefix - 16 * place), 16)))))
    ending = f"/{prefix}" if len(texts) == 8 else f"::/{prefix}"
    return F.concat(F.concat_ws(":", *texts), F.lit(ending))


def _mask(bits: int, width: int) -> int:
    return ((1 << bits) - 1) << (width - bits)


def _domain(name: Column) -> Column:
    return F.when(name.rlike(r"\..*\."), F.regexp_replace(name, r"^[^.]*\.", "")).otherwise(name)
