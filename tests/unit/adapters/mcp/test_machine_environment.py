"""Variables of the environment that servers get."""

from __future__ import annotations

import pytest

from toolscript.adapters.mcp.machine_environment import select_network_variables

pytestmark = pytest.mark.req("G-02")

PROXY = "http://proxy:3128"


def test_proxies_and_certificates_are_passed_on_in_both_cases_and_nothing_else_is() -> None:
    network = {name: PROXY for upper in ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY") for name in (upper, upper.lower())}
    network |= dict.fromkeys(("SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"), "/c.pem")
    network |= {"UV_SYSTEM_CERTS": "true"}
    others = {"OPENAI_API_KEY": "sk-1", "PIP_INDEX_URL": "https://joe:pw@packages", "SSLKEYLOGFILE": "/keys"}
    assert select_network_variables(network | others, {}) == network


def test_a_variable_of_the_server_replaces_both_spellings() -> None:
    environment = {"HTTPS_PROXY": PROXY, "https_proxy": PROXY, "HTTP_PROXY": PROXY}
    assert select_network_variables(environment, {"HTTPS_PROXY": ""}) == {"HTTP_PROXY": PROXY}
