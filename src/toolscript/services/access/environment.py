"""Which settings are allowed in which environment: the authentication bypass never works in production."""

from __future__ import annotations

from typing import Protocol

from toolscript.domain.errors import Invalid
from toolscript.domain.tenants import TENANT_RULE, is_tenant_name

PRODUCTION = "production"


class EnvironmentSettings(Protocol):
    """The settings that decide about authentication."""

    @property
    def environment(self) -> str: ...

    @property
    def debug_bypass_auth(self) -> bool: ...

    @property
    def tenant(self) -> str: ...


def check_environment(settings: EnvironmentSettings) -> None:
    """Raises Invalid for settings that contradict each other; call it before anything is opened."""
    if settings.debug_bypass_auth and settings.environment == PRODUCTION:
        raise Invalid(
            "TOOLSCRIPT_DEBUG_BYPASS_AUTH is on and TOOLSCRIPT_ENVIRONMENT is production, where every request needs a "
            "token: switch the bypass off, or set TOOLSCRIPT_ENVIRONMENT to development",
            details={"field": "TOOLSCRIPT_DEBUG_BYPASS_AUTH", "allowed": "false in production"},
        )
    if not is_tenant_name(settings.tenant):
        raise Invalid(
            f"TOOLSCRIPT_TENANT is not a valid tenant name: give {TENANT_RULE}",
            details={"field": "TOOLSCRIPT_TENANT", "allowed": TENANT_RULE},
        )


def may_bypass(settings: EnvironmentSettings) -> bool:
    """Whether requests may bypass authentication."""
    return settings.debug_bypass_auth and settings.environment != PRODUCTION
