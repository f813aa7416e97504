"""Limits that a worker process sets for itself, where the platform has them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

# Of a system without free memory: workers are killed before the gateway and everything else.
_FIRST_TO_BE_KILLED = "1000"


def limit_worker(*, memory_bytes: int, processor_seconds: int | None = None) -> None:
    """Restricts this process for good: its memory and processor time, and it cannot write files."""
    try:
        import resource
    except ImportError:  # Windows
        return
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_BE_KILLED, encoding="ascii")
    limits = {resource.RLIMIT_AS: memory_bytes, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if processor_seconds is not None:
        limits[resource.RLIMIT_CPU] = processor_seconds
    for resource_id, maximum in limits.items():
        _, hard = resource.getrlimit(resource_id)
        limit = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        try:
            resource.setrlimit(resource_id, (limit, limit))
        except (OSError, ValueError):
            continue
