"""What may be switched on where: trials have doors that production must not have, not even by mistake."""

from __future__ import annotations

from typing import Protocol

from toolscript.domain.errors import Invalid
from toolscript.domain.tenants import TENANT_RULE, is_tenant_name

PRODUCTION = "production"


class Surroundings(Protocol):
    """The settings that say where this runs, and who is believed there."""

    @property
    def environment(self) -> str: ...

    @property
    def debug_bypass_auth(self) -> bool: ...

    @property
    def tenant(self) -> str: ...


def check_environment(settings: Surroundings) -> None:
    """Raises Invalid for settings that do not go together; nothing may be opened with those."""
    if settings.debug_bypass_auth and settings.environment == PRODUCTION:
        raise Invalid(
            "TOOLSCRIPT_DEBUG_BYPASS_AUTH is on and TOOLSCRIPT_ENVIRONMENT is production, where everyone needs a "
            "token: switch the bypass off, or run this as development",
            details={"field": "TOOLSCRIPT_DEBUG_BYPASS_AUTH", "allowed": "false in production"},
        )
    if not is_tenant_name(settings.tenant):
        raise Invalid(
            f"TOOLSCRIPT_TENANT is not usable: give {TENANT_RULE}",
            details={"field": "TOOLSCRIPT_TENANT", "allowed": TENANT_RULE},
        )


def may_bypass(settings: Surroundings) -> bool:
    """Whether a request may say that it needs no token."""
    return settings.debug_bypass_auth and settings.environment != PRODUCTION
