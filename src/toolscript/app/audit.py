"""Opens the store of the audit that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolscript.adapters.sql.audit import SqlAudit
from toolscript.app.knowledge import IN_MEMORY
from toolscript.ports.observability import AuditStore
from toolscript.services.support.call_log import CallLog
from toolscript.settings import Settings


def open_audit(settings: Settings) -> AuditStore | None:
    """The store, opened by its first use, or None where the audit is switched off."""
    if not settings.audit:
        return None
    is_elsewhere = settings.store == IN_MEMORY or settings.store.startswith("postgres")
    url = settings.store if is_elsewhere else f"sqlite:///{settings.data / 'audit.db'}"
    return SqlAudit(url, max_days=settings.audit_days, max_bytes=settings.audit_max_mib * 2**20)


@asynccontextmanager
async def open_call_log(settings: Settings) -> AsyncIterator[CallLog]:
    """The audit for reading, without an index or a model, also while a gateway writes it."""
    store = open_audit(settings)
    try:
        yield CallLog(store)
    finally:
        if store:
            await store.close()
