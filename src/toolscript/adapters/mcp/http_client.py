"""HTTP clients for servers and for their authorization servers. All share the certificates: reading them takes 50 ms of
the event loop."""

from __future__ import annotations

import functools
import os
import ssl

import httpx2


def create_http_client(
    *, headers: dict[str, str] | None = None, timeout: httpx2.Timeout, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """A client that trusts the certificates of the system, and follows no redirects: the SDK follows those within an
    origin."""
    context = _read_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, verify=context)


@functools.cache
def _read_certificates(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The certificates that these variables name, or those of the system."""
    return httpx2.create_ssl_context()
