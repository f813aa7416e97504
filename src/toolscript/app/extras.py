"""The error for a setting that needs a package that is not installed."""

from __future__ import annotations

from toolscript.domain.errors import Invalid


def missing_extra(extra: str, setting: str) -> Invalid:
    """Builds the error, with the command that installs the extra."""
    return Invalid(
        f"{setting} needs an extra that is not installed: pip install 'toolscript[{extra}]'",
        details={"field": setting, "extra": extra},
    )
