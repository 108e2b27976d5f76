"""The network of a client, from its address or name; `access_log.network` is the same on Spark.

Java's regular expressions decide there: `$` also matches before a last line separator, and `.` matches none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from newsstand.errors import BadOption

OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
QUAD = rf"{OCTET}(?:\.{OCTET}){{3}}"
GROUP = "[0-9a-f]{1,4}"
GROUPS = f"(?:{GROUP}(?::{GROUP})*)?"

_SEPARATORS = "\n\r\x85\u2028\u2029"
_END = rf"(?=[{_SEPARATORS}]?\Z)"
_ANY = rf"[^{_SEPARATORS}]*"

_V4 = re.compile(f"{QUAD}{_END}", re.ASCII)
_DECORATION = re.compile(rf"\A::ffff:(?={QUAD}{_END})|%{_ANY}{_END}|\.{_END}", re.ASCII)
_DOTTED_END = re.compile(f":{QUAD}{_END}", re.ASCII)
_UP_TO_COLON = re.compile(f"{_ANY}:")
_FULL_V6 = re.compile(f"(?:{GROUP}:){{7}}{GROUP}{_END}")
_SHORT_V6 = re.compile(f"{GROUPS}::{GROUPS}{_END}")
_SUBDOMAIN = re.compile(rf"\.{_ANY}\.")


def require_prefixes(prefix_v4: int, prefix_v6: int) -> None:
    """Raise BadOption if a length of network prefixes is out of range."""
    for option, prefix, longest in (("prefix_v4", prefix_v4, 32), ("prefix_v6", prefix_v6, 128)):
        if not 0 <= prefix <= longest:
            raise BadOption(f"must be within 0 … {longest}", **{option: prefix})


def networks_of(hosts: Iterable[str], prefix_v4: int = 24, prefix_v6: int = 48) -> list[str]:
    """Return the networks of hosts, such as `192.0.2.0/24`, `2001:db8:1::/48` or `example.org`."""
    require_prefixes(prefix_v4, prefix_v6)
    return [_network(host, prefix_v4, prefix_v6) for host in hosts]


def mask(bits: int, width: int) -> int:
    """Return a number of `width` bits of which the first `bits` are set."""
    return ((1 << bits) - 1) << (width - bits)


def _network(host: str, prefix_v4: int, prefix_v6: int) -> str:
    if _V4.match(host):
        return _network_v4(host, prefix_v4)
    name = _DECORATION.sub("", host.lower())
    if _V4.match(name):
        return _network_v4(name, prefix_v4)
    if ":" not in name:
        return name.partition(".")[2] if _SUBDOMAIN.search(name) else name
    address = _in_hexadecimal(name)
    groups = _groups(address)
    if _FULL_V6.match(address) or (_SHORT_V6.match(address) and len(groups) == 8):
        return _network_v6(groups, prefix_v6)
    return address


def _network_v4(quad: str, prefix: int) -> str:
    full, bits = divmod(prefix, 8)
    octets = quad.split(".")
    kept = octets[:full]
    if bits and (octet := _number(octets[full])) is not None:
        kept.append(str(octet & mask(bits, 8)))
    return ".".join([*kept, *["0"] * (4 - full - bool(bits))]) + f"/{prefix}"


def _number(octet: str) -> int | None:
    return int(octet) if octet.isdecimal() else None


def _in_hexadecimal(address: str) -> str:
    """Return the same IPv6 address, without a dotted end."""
    if not _DOTTED_END.search(address):
        return address
    start = _UP_TO_COLON.match(address)
    numbers = [_number(octet) for octet in address.rpartition(":")[2].split(".")]
    one, two, three, four = ("null" if number is None else f"{number:02x}" for number in numbers)
    return f"{start[0] if start else ''}{one}{two}:{three}{four}"


def _groups(address: str) -> list[str]:
    """Return the groups of an IPv6 address in full; more than eight if it has a `::` that stands for none."""
    left, _, right = address.partition("::")
    before, after = ([group for group in half.split(":") if group] for half in (left, right))
    return before + ["0"] * max(8 - len(before) - len(after), 1) + after


def _network_v6(groups: list[str], prefix: int) -> str:
    texts = []
    for place in range(math.ceil(prefix / 16)):
        value = int("0" + groups[place].rstrip(_SEPARATORS), 16)
        texts.append(f"{value & mask(min(16, prefix - 16 * place), 16):x}")
    return ":".join(texts) + (f"/{prefix}" if len(texts) == 8 else f"::/{prefix}")
