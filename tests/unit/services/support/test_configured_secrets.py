"""What the audit must not keep, wherever a caller passes it."""

from __future__ import annotations

import pytest

from toolscript.domain.redaction import redact_arguments
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.services.support.configured_secrets import list_configured_secrets


@pytest.mark.req("G-16", "X-04")
def test_the_password_of_a_proxy_is_kept_out_of_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://joe:open-sesame@proxy:3128")
    spec = ServerSpec("x", Transport.STDIO, command="x", env={"http_proxy": "ann:shut-sesame@proxy:3128"})
    secrets = list_configured_secrets([spec])
    kept = redact_arguments({"text": "open-sesame", "words": ["ann:shut-sesame@proxy"]}, secrets=secrets)
    assert "sesame" not in str(kept)
