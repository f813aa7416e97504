"""What each tenant's plan allows, and how often: the plans of a file, and a bucket of requests per tenant."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolscript.domain.access import DEFAULT_PLAN, Plan, Principal
from toolscript.domain.errors import Invalid, RateLimited
from toolscript.services.access.rates import Buckets

MOST_PLANS = 1000
LARGEST_TOP_K = 200
MOST_REQUESTS = 1_000_000
KEYS = ("max_top_k", "fields", "requests_per_minute")


class Plans:
    """Knows each principal's plan and counts its tenant's requests."""

    def __init__(self, plans: Mapping[str, Plan], clock: Callable[[], float] = time.monotonic) -> None:
        self._plans = dict(plans)
        self._buckets = Buckets(clock)

    def of(self, principal: Principal) -> Plan:
        """The principal's plan; a plan that nobody has defined is the default one."""
        return self._plans.get(principal.plan) or self._plans.get(DEFAULT_PLAN) or Plan()

    def admit(self, principal: Principal) -> Plan:
        """Counts one request of the principal's tenant. Raises RateLimited, saying how long to wait."""
        plan = self.of(principal)
        limit = plan.requests_per_minute
        if limit is None:
            return plan
        wait = self._buckets.take(principal.tenant, limit)
        if wait:
            raise RateLimited(
                f"requests on the plan {plan.name} are limited to {limit} a minute: try again in {wait:g} seconds",
                details={"retry_after_seconds": wait, "requests_per_minute": limit, "plan": plan.name},
            )
        return plan


def load_plans(file: Path | None) -> dict[str, Plan]:
    """The plans of a TOML or JSON file by name: tables `[plans.NAME]`. There is always one called default, which limits
    nothing unless the file says otherwise. Raises Invalid, naming file, plan and field."""
    plans = {DEFAULT_PLAN: Plan()}
    if file is None:
        return plans
    told = _read(file)
    unknown = sorted(told.keys() - {"plans"})
    if unknown:
        raise _wrong(file, unknown[0], "is not known: write [plans.NAME]")
    rows = told.get("plans", {})
    if not isinstance(rows, Mapping):
        raise _wrong(file, "plans", "is a table of tables: write [plans.NAME]")
    if len(rows) > MOST_PLANS:
        raise _wrong(file, "plans", f"has {len(rows)} tables: {MOST_PLANS} at most")
    return plans | {name: _plan(file, name, row) for name, row in rows.items()}


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.expanduser().read_text(encoding="utf-8")
        is_json = file.suffix.lower() == ".json"
        told = json.loads(text, object_pairs_hook=_each_once) if is_json else tomllib.loads(text)
    except (OSError, ValueError, RecursionError, RuntimeError) as error:
        raise Invalid(f"the plans of {file} cannot be read: {error}", details={"file": str(file)}) from error
    if not isinstance(told, dict):
        raise Invalid(f"{file} holds no tables: write [plans.NAME]", details={"file": str(file)})
    return told


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for n, (key, _) in enumerate(pairs) if key in {k for k, _ in pairs[:n]})
        raise ValueError(f"{twice!r} is there twice")
    return found


def _plan(file: Path, name: str, told: Any) -> Plan:
    where = f"plan {name}"
    if not name.strip():
        raise _wrong(file, "plans", "has a plan without a name")
    if not isinstance(told, Mapping):
        raise _wrong(file, where, "is not a table")
    for key in told:
        if key not in KEYS:
            raise _wrong(file, f"{where}, {key}", f"is not known: give {', '.join(KEYS)}")
    return Plan(
        name,
        _number(file, f"{where}, max_top_k", told.get("max_top_k"), LARGEST_TOP_K),
        _fields(file, f"{where}, fields", told.get("fields")),
        _number(file, f"{where}, requests_per_minute", told.get("requests_per_minute"), MOST_REQUESTS),
    )


def _number(file: Path, key: str, value: Any, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise _wrong(file, key, f"is a whole number from 1 to {most}; leave it out for no limit")
    return value


def _fields(file: Path, key: str, value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
        raise _wrong(file, key, "is a list of names of metadata fields; leave it out for all of them")
    return frozenset(value)


def _wrong(file: Path, key: str, what: str) -> Invalid:
    return Invalid(f"{file}: {key} {what}", details={"file": str(file), "key": key})
