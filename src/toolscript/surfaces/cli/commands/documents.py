"""`toolscript documents`: search, list, show and remove a tenant's documents."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.access import Principal
from toolscript.domain.errors import NotFound, ToolscriptError
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import (
    NOTHING_RELEVANT,
    format_count,
    print_answer,
    print_note,
    print_text,
    printable,
)
from toolscript.surfaces.cli.terminal.values import format_conditions, parse_conditions

if TYPE_CHECKING:
    from toolscript.app.app import App

Answer = Mapping[str, Any]
Progress = Callable[[int, int], None]
TenantLocal = Callable[["App", Principal], Awaitable[Any]]

# Embedding a batch of long documents can take many minutes on a small machine.
TIMEOUT_SECONDS = 3600.0
SNIPPET_CHARACTERS = 240
_HIGHLIGHTED = re.compile(r"\*\*(.+?)\*\*")

log = logging.getLogger(__name__)


@click.group(cls=CommandGroup)
def documents() -> None:
    """Search, list, show and remove the documents of one tenant.

    The tenant is TOOLSCRIPT_TENANT, or --tenant. A gateway that runs on the data folder is used.
    """


@documents.command()
@click.argument("query", required=False, default="")
@click.option(
    "--type",
    "search_type",
    type=click.Choice(["hybrid", "semantic", "keyword"]),
    default="hybrid",
    help="By meaning, by words (BM25), or both.  [default: hybrid]",
)
@click.option("--fusion", type=click.Choice(["rrf", "zscore"]), help="How hybrid combines both rankings.")
@options.filters
@options.limit(200, 10, "documents")
@click.option("--offset", type=click.IntRange(0, 10_000), default=0, help="Number of documents to skip.")
@options.min_relevance("documents")
@click.option("--rerank", is_flag=True, help="Reorder the best documents with a reranker (TOOLSCRIPT_RERANKER).")
@options.tenant_store
def search(query: str, limit: int, filters: tuple[str, ...], **request: Any) -> None:
    """Find documents.

    Without QUERY, all documents that match the filters, by id.

    \b
    toolscript documents search "how do we rotate the keys"
    toolscript documents search lease --filter "year>=2024" --filter tags=contract
    toolscript documents search --filter team=search
    """
    request |= {
        "query": query or None,
        "top_k": limit,
        "snippet_max_chars": SNIPPET_CHARACTERS,
        "highlight": not options.is_json() and sys.stdout.isatty(),
    }
    where = parse_conditions(filters, "--filter")

    async def local(app: App, caller: Principal) -> Answer:
        from toolscript.services.documents.request import DocumentQuery, SearchType
        from toolscript.surfaces.json.documents import build_page_response

        await _finish_interrupted(app)
        typed = {**request, "search_type": SearchType(request["search_type"]), "where": where}
        return build_page_response(await app.texts.document_search.search(caller, DocumentQuery(**typed)))

    body = {**request, "filters": format_conditions(where)}
    answer = _run(lambda documents: documents.request("/search", local, body=body))
    print_answer(answer, lambda _: _show_hits(answer, request["offset"]))


@documents.command("list")
@options.limit(1000, 100, "documents")
@click.option("--after", metavar="ID", help="Start after this id.")
@options.tenant_store
def list_(limit: int, after: str | None) -> None:
    """List documents by id."""
    print_answer(_run(lambda documents: documents.list_page(after=after, limit=limit)), _show_list)


@documents.command()
@click.argument("doc_id", metavar="ID")
@options.tenant_store
def show(doc_id: str) -> None:
    """Print the title, metadata and text of a document."""

    async def local(app: App, caller: Principal) -> Answer:
        from toolscript.surfaces.json.documents import build_document_response

        return build_document_response(
            await app.texts.ingest_documents.get(caller.tenant, doc_id), app.access.plans.get(caller)
        )

    path = f"/documents/{quote(doc_id, safe='', errors='replace')}"
    print_answer(_run(lambda documents: documents.request(path, local)), _show_document)


@documents.command()
@click.argument("doc_ids", nargs=-1, required=True, metavar="ID...")
@options.tenant_store
def remove(doc_ids: tuple[str, ...]) -> None:
    """Remove documents. Missing documents are reported, and the others removed; exits with 4 when all are missing."""
    ids = list(dict.fromkeys(doc_ids))

    async def remove_each(documents: TenantDocuments) -> Answer:
        removed = [doc_id for doc_id in ids if await documents.remove([doc_id])]
        return {"removed": removed, "missing": [doc_id for doc_id in ids if doc_id not in removed]}

    answer = _run(remove_each)
    if not answer["removed"]:
        raise NotFound(f"no such document: {', '.join(map(repr, ids))}; see toolscript documents list")
    print_answer(answer, _show_removed)


class TenantDocuments:
    """The documents of the session's tenant, in the gateway or the application."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._caller = Principal(session.settings.tenant)
        self._http: dict[str, Any] = {"tenant": self._caller.tenant, "timeout_seconds": TIMEOUT_SECONDS}

    async def request(self, path: str, local: TenantLocal, **http: Any) -> Any:
        """The response to a request for the tenant (see `CommandSession.request`)."""
        return await self._session.request(path, lambda app: local(app, self._caller), **self._http, **http)

    async def remove(self, ids: Sequence[str]) -> int:
        """Removes documents; returns how many existed."""
        if app := self._session.app:
            return await app.texts.ingest_documents.delete(self._caller.tenant, ids)
        removed = 0
        for doc_id in ids:
            try:
                await self._session.send(f"/documents/{quote(doc_id, safe='')}", method="DELETE", **self._http)
            except NotFound:
                continue
            removed += 1
        return removed

    async def list_page(self, *, after: str | None, limit: int) -> Any:
        """A page of documents, ordered by id."""

        async def local(app: App, caller: Principal) -> Answer:
            from toolscript.surfaces.json.documents import build_document_list_response

            documents = await app.texts.ingest_documents.listing(caller.tenant, after=after, limit=limit + 1)
            return build_document_list_response(documents, app.access.plans.get(caller), limit=limit)

        return await self.request("/documents", local, after=after, limit=limit)


async def _finish_interrupted(app: App) -> None:
    """Indexes the documents that an interrupted command has stored and not indexed."""
    from rich.console import Console

    with Console(stderr=True).status("Checking the index"):
        try:
            await app.texts.ingest_documents.repair()
        except ToolscriptError as error:
            log.warning("documents_unfinished", extra={"reason": error.message})


def _run(use: Callable[[TenantDocuments], Awaitable[Answer]]) -> Answer:
    return run_in_session(read_settings(), lambda session: use(TenantDocuments(session)), with_catalogue=False)


def _show_hits(answer: Answer, offset: int) -> None:
    width = min(shutil.get_terminal_size().columns, 110) - 4
    for number, hit in enumerate(answer["hits"], start=offset + 1):
        title = str(hit["metadata"].get("title") or "")
        name = click.style(printable(hit["doc_id"]), fg="cyan")
        relevance = "" if hit["relevance"] is None else click.style(f"  {hit['relevance']:.2f}", dim=True)
        click.echo(
            f"{number:>3} {name}{relevance}" + (f"  {printable(title)}" if title and title != hit["doc_id"] else "")
        )
        for line in textwrap.wrap(" ".join(printable(hit["snippet"] or "").split()), max(width, 20)):
            click.echo("    " + _HIGHLIGHTED.sub(lambda found: click.style(found[1], bold=True), line))
    if not answer["hits"]:
        click.echo("No documents found")
    else:
        if answer["nothing_relevant"]:
            print_note(NOTHING_RELEVANT)
        more = " or more" if answer["total_relation"] == "gte" else ""
        last = offset + len(answer["hits"])
        click.echo(f"\n{offset + 1} to {last} of {answer['total']}{more}", nl=False)
        click.echo(f"; next page: --offset {last}" if answer["next_page_token"] else "")
    if answer["degraded"]:
        print_note(f"incomplete results: {', '.join(answer['degraded'])} failed")


def _show_list(answer: Answer) -> None:
    columns = {"Document": "id", "Title": "title", "Characters": "characters"}
    print_table(columns, answer["documents"], empty="No documents: add some with toolscript ingest")
    if answer["next"]:
        click.echo(f"\nNext page: --after {printable(answer['next'])}")


def _show_document(answer: Answer) -> None:
    click.echo(click.style(printable(answer["title"] or answer["id"]), bold=True))
    for name, value in answer["metadata"].items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        click.echo(f"{click.style(printable(name), fg='cyan')}: {printable(text)}")
    click.echo()
    print_text(answer["text"])


def _show_removed(answer: Answer) -> None:
    click.echo(f"{format_count(len(answer['removed']), 'document')} removed")
    for doc_id in answer["missing"]:
        print_note(f"no such document: {doc_id!r}")
