"""What each tenant's plan allows: plans from a file, and the rate limit of each tenant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolscript.configuration.tables import check_keys, describe_problem, read_tables
from toolscript.domain.access import DEFAULT_PLAN, Plan, Principal
from toolscript.domain.errors import RateLimited
from toolscript.ports.access import RateBuckets
from toolscript.services.access.rates import Buckets

MAX_PLANS = 1000
MAX_TOP_K = 200
MAX_REQUESTS = 1_000_000
KEYS = ("max_top_k", "fields", "requests_per_minute")


class Plans:
    """Finds each principal's plan and counts its tenant's requests."""

    def __init__(self, plans: Mapping[str, Plan], buckets: RateBuckets | None = None) -> None:
        """Without `buckets`, this process counts alone."""
        self._plans = dict(plans)
        self._buckets = Buckets() if buckets is None else buckets

    def get(self, principal: Principal) -> Plan:
        """The principal's plan; the default plan when the principal's is not defined."""
        return self._plans.get(principal.plan) or self._plans.get(DEFAULT_PLAN) or Plan()

    async def admit(self, principal: Principal) -> Plan:
        """Counts one request of the principal's tenant. Raises RateLimited with the seconds to wait."""
        plan = self.get(principal)
        limit = plan.requests_per_minute
        if limit is None:
            return plan
        wait = await self._buckets.take(f"tenant {principal.tenant}", limit)
        if wait:
            raise RateLimited(
                f"requests on the plan {plan.name} are limited to {limit} a minute: try again in {wait:g} seconds",
                details={"retry_after_seconds": wait, "requests_per_minute": limit, "plan": plan.name},
            )
        return plan


def load_plans(file: Path | None) -> dict[str, Plan]:
    """The plans of a TOML or JSON file by name: tables `[plans.NAME]`. The plan `default` always exists, without limits
    unless the file sets some. Raises Invalid, naming file, plan and field."""
    plans = {DEFAULT_PLAN: Plan()}
    if file is None:
        return plans
    content = read_tables(file, "[plans.NAME]")
    check_keys(file, content, ["plans"])
    tables = content.get("plans", {})
    if not isinstance(tables, Mapping):
        raise describe_problem(file, "plans", "must be a table of tables: write [plans.NAME]")
    if len(tables) > MAX_PLANS:
        raise describe_problem(file, "plans", f"has {len(tables)} tables: at most {MAX_PLANS} are allowed")
    return plans | {name: _parse_plan(file, name, table) for name, table in tables.items()}


def _parse_plan(file: Path, name: str, table: Any) -> Plan:
    where = f"plan {name}"
    if not name.strip():
        raise describe_problem(file, "plans", "has a plan without a name")
    if not isinstance(table, Mapping):
        raise describe_problem(file, where, "is not a table")
    check_keys(file, table, KEYS, f"{where}, ")
    return Plan(
        name,
        _parse_number(file, f"{where}, max_top_k", table.get("max_top_k"), MAX_TOP_K),
        _parse_fields(file, f"{where}, fields", table.get("fields")),
        _parse_number(file, f"{where}, requests_per_minute", table.get("requests_per_minute"), MAX_REQUESTS),
    )


def _parse_number(file: Path, key: str, value: Any, maximum: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= maximum:
        raise describe_problem(file, key, f"must be a whole number from 1 to {maximum}; leave it out for no limit")
    return value


def _parse_fields(file: Path, key: str, value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) and name.strip() for name in value):
        raise describe_problem(file, key, "must be a list of names of metadata fields; leave it out for all fields")
    return frozenset(value)
