"""The variables of this machine that a server needs to reach the network: its proxies and its certificates.

Servers get no other variable of ours but those of the MCP SDK (PATH, HOME …): a key in our environment is not for them.
"""

from __future__ import annotations

from collections.abc import Mapping

PROXIES = frozenset("ALL_PROXY HTTP_PROXY HTTPS_PROXY NO_PROXY".split())
CERTIFICATES = frozenset(
    "AWS_CA_BUNDLE CURL_CA_BUNDLE DENO_CERT DENO_TLS_CA_STORE GIT_SSL_CAINFO GRPC_DEFAULT_SSL_ROOTS_FILE_PATH "
    "NIX_SSL_CERT_FILE NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE "
    "SSL_CLIENT_CERT".split()
)
# What npx, uvx and pip read in place of the above.
INSTALLERS = frozenset(
    "NODE_USE_ENV_PROXY NPM_CONFIG_CAFILE NPM_CONFIG_HTTPS_PROXY NPM_CONFIG_NOPROXY NPM_CONFIG_PROXY PIP_CERT "
    "PIP_CLIENT_CERT PIP_PROXY PIP_TRUSTED_HOST UV_INSECURE_HOST UV_NATIVE_TLS UV_SYSTEM_CERTS".split()
)
_NAMES = PROXIES | CERTIFICATES | INSTALLERS


def select_network_variables(environment: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The variables of the environment that are passed on, in upper and lower case as they are. A variable that the
    server has in its `own` environment replaces both spellings: most programs prefer `https_proxy`."""
    names = _NAMES - {name.upper() for name in own}
    return {name: value for name, value in environment.items() if name.upper() in names}
