"""Where authentication may be bypassed, and which tenant names are valid settings."""

from __future__ import annotations

from typing import Any

import pytest

from toolscript.app.access import check_environment, may_bypass
from toolscript.domain.access import is_tenant_name
from toolscript.domain.errors import Invalid
from toolscript.settings import Settings


@pytest.mark.req("D-05")
def test_production_with_the_bypass_on_is_refused() -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_DEBUG_BYPASS_AUTH is on") as error:
        check_environment(Settings(environment="production", debug_bypass_auth=True))
    assert error.value.details["field"] == "TOOLSCRIPT_DEBUG_BYPASS_AUTH"


@pytest.mark.req("D-05")
@pytest.mark.parametrize(
    ("environment", "switched_on", "may"),
    [("development", True, True), ("development", False, False), ("production", False, False)],
)
def test_the_bypass_needs_the_switch_and_no_production(environment: str, switched_on: bool, may: bool) -> None:
    settings = Settings(environment=environment, debug_bypass_auth=switched_on)
    check_environment(settings)
    assert may_bypass(settings) is may


@pytest.mark.req("D-05")
def test_unchecked_settings_do_not_allow_the_bypass_in_production() -> None:
    assert not may_bypass(Settings(environment="production", debug_bypass_auth=True))


@pytest.mark.req("D-04")
@pytest.mark.parametrize("tenant", ["", "  ", "a\nb", "a\x00", "\x85", "\u2028", "\ud800", "x" * 257])
def test_an_invalid_tenant_name_is_refused_as_a_setting(tenant: str) -> None:
    assert not is_tenant_name(tenant)
    with pytest.raises(Invalid, match="TOOLSCRIPT_TENANT"):
        check_environment(Settings(tenant=tenant))


@pytest.mark.req("D-04")
@pytest.mark.parametrize("tenant", ["a", "acme corp", "x" * 256, "Zürich/7", "日本", "👩‍💻"])
def test_a_tenant_name_is_any_printable_line(tenant: str) -> None:
    assert is_tenant_name(tenant)


@pytest.mark.req("D-04")
@pytest.mark.parametrize("tenant", [None, 7, True, ["a"], {"a": 1}, b"a"])
def test_only_a_string_is_a_tenant_name(tenant: Any) -> None:
    assert not is_tenant_name(tenant)
