"""TLS to the parts of a platform on this machine: each is known by the certificate that it was configured with."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def trusting_only(certificate: Path | None) -> ssl.SSLContext:
    """Trust the first certificate of a PEM file, under any name, and no other; raise OSError or ValueError.

    A part is asked at an address of this machine, for which its certificate need not be made. What follows the
    first certificate in the file are those of authorities, which have made others, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if certificate is not None:
        found = _CERTIFICATE.search(certificate.read_text(encoding="ascii"))
        if found is None:
            raise ValueError(f"{certificate}: holds no certificate")
        context.load_verify_locations(cadata=found[0])
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
