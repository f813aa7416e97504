"""Checks a catalogue for tools that searches mistake for each other, and proposes better descriptions. Changes
nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchPart
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import LanguageModel
from toolscript.ports.stores import FeedbackStore
from toolscript.retrieval.catalogue import CatalogueFacts
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import FindView
from toolscript.services.catalogue_check.findings import (
    DEFAULT_SIMILARITY,
    CatalogueFinding,
    FindingKind,
    build_requests_finding,
    find_duplicates,
    find_poor_descriptions,
    find_similar_tools,
)
from toolscript.services.catalogue_check.proposals import DescriptionTask, propose_descriptions
from toolscript.services.catalogue_check.trial import TextTrial
from toolscript.services.tools.hybrid_search import ToolSearch

# A search takes 5 to 10 ms.
MAX_REQUESTS = 500
MAX_PROPOSALS = 20
# Below, most tools of a server are similar to each other.
MIN_SIMILARITY = 0.5
# Recorded requests of a tool: the model is shown one half, the other half measures what it proposes.
MIN_REQUESTS = 8
# The findings that a description may help against, and their order.
PROPOSED = {FindingKind.REQUESTS: 0, FindingKind.DESCRIPTION: 1, FindingKind.SIMILAR: 2}

ServedRequests = Mapping[str, Mapping[str, str]]
"""The requests that each tool served, by their digests."""


@dataclass(frozen=True, slots=True)
class DescriptionProposal:
    """A better description of a tool, and R@5 of held-out requests with the present one and with this one."""

    tool_id: str
    name: str
    """The name that its server gives it, which overrides go by."""
    description: str = ""
    """Empty if there is none."""
    before: float | None = None
    after: float | None = None
    measured_on: int = 0
    """The number of held-out requests: of the tool, and of the tools that it is mistaken for."""
    reason: str = ""
    """Why there is no description, or no measurement."""


@dataclass(frozen=True, slots=True)
class CatalogueReport:
    """What was checked, and found."""

    tools: int
    compared: int
    """The number of tools with a vector: only these were compared."""
    requests: int
    """The number of recorded requests that were searched again."""
    findings: Sequence[CatalogueFinding]
    proposals: Sequence[DescriptionProposal] = ()


@dataclass(frozen=True, slots=True)
class CatalogueCheck:
    """Looks at what the caller may see of the catalogue, and at what feedback has recorded."""

    index: VectorIndex
    snapshots: CatalogueSnapshots
    find_view: FindView
    search: ToolSearch
    feedback: FeedbackStore
    trial: TextTrial
    language_model: LanguageModel | None

    async def run(self, *, similarity: float = DEFAULT_SIMILARITY, proposals: int = 0) -> CatalogueReport:
        """The findings, with tools of one server compared from this `similarity` on, and descriptions for up to so
        many of the tools. Raises Invalid for a similarity out of range, Unavailable for `proposals` without a
        language model, and what store and index raise."""
        if not MIN_SIMILARITY <= similarity <= 1:
            raise Invalid(
                f"similarity {similarity:g} is out of range: give {MIN_SIMILARITY:g} to 1",
                details={"field": "similarity"},
            )
        model = self.language_model
        if proposals and model is None:
            raise Unavailable(
                "no language model is configured to propose descriptions: set TOOLSCRIPT_LLM_URL and "
                "TOOLSCRIPT_LLM_MODEL"
            )
        catalogue, view = await self.snapshots.current().facts(), await self.find_view(current_request())
        tools = {
            item_id: facts
            for item_id, facts in catalogue.items.items()
            if facts.type is ItemType.TOOL and not facts.quarantine and view.shows(item_id)
        }
        vectors = await self.index.vectors(TOOLS, list(tools))
        served, newest = await self._read_served(tools)
        findings = [
            *find_poor_descriptions(tools),
            *await asyncio.to_thread(lambda: list(find_similar_tools(tools, vectors, similarity))),
            *find_duplicates(tools, catalogue, self.trial.variants),
            *await self._find_mistaken(served, newest),
        ]
        chosen = _choose_tools(findings)[:proposals]
        made = await self._propose(model, chosen, findings, served, catalogue) if model and chosen else []
        return CatalogueReport(len(tools), len(vectors), len(newest), findings, made)

    async def _read_served(self, tools: Collection[str]) -> tuple[ServedRequests, dict[str, str]]:
        """The requests that these tools served, where more callers say so than the opposite, and the newest of them
        by digest."""
        votes: Counter[tuple[str, str]] = Counter()
        requests: dict[str, str] = {}
        for verdict in sorted(await self.feedback.get_verdicts(), key=lambda verdict: -verdict.recorded_at):
            votes[verdict.item_id, verdict.digest] += 1 if verdict.is_right else -1
            requests.setdefault(verdict.digest, verdict.request)
        served: dict[str, dict[str, str]] = {}
        for (tool_id, digest), sum_of_votes in sorted(votes.items()):
            if sum_of_votes > 0 and tool_id in tools:
                served.setdefault(tool_id, {})[digest] = requests[digest]
        known = set().union(*served.values())
        return served, {d: requests[d] for d in [d for d in requests if d in known][:MAX_REQUESTS]}

    async def _find_mistaken(self, served: ServedRequests, newest: Mapping[str, str]) -> list[CatalogueFinding]:
        """The tools that served requests which find another tool first, the largest number of requests first."""
        tools: dict[str, list[str]] = {digest: [] for digest in newest}
        for tool_id, requests in served.items():
            for digest in requests.keys() & newest.keys():
                tools[digest].append(tool_id)
        mistaken: dict[str, dict[str, list[str]]] = {}
        for digest, request in newest.items():
            results = await self.search.search(request, limit=1, threshold=0, recorded=False)
            is_late = self.trial.embedder is not None and SearchPart.EMBEDDER in results.report.degraded
            hits = [] if is_late else results.hits
            if hits and set(hits[0].ids).isdisjoint(tools[digest]):
                for tool_id in tools[digest]:
                    mistaken.setdefault(tool_id, {}).setdefault(hits[0].id, []).append(request)
        searched = Counter(tool_id for ids in tools.values() for tool_id in ids)
        made = [build_requests_finding(tool_id, firsts, searched[tool_id]) for tool_id, firsts in mistaken.items()]
        return sorted(made, key=lambda finding: (-len(finding.requests), finding.tools))

    async def _propose(
        self,
        model: LanguageModel,
        tool_ids: Sequence[str],
        findings: Sequence[CatalogueFinding],
        served: ServedRequests,
        catalogue: CatalogueFacts,
    ) -> list[DescriptionProposal]:
        """Asks for descriptions, and measures each of them alone."""
        rivals, tasks = _find_rivals(findings), []
        for tool_id in tool_ids:
            item = catalogue.items[tool_id].to_item()
            # Without tools that were added during the check.
            known = (catalogue.items[i] for i in rivals.get(tool_id, ()) if i in catalogue.items)
            similar = [facts.to_item() for facts in known if facts.server == item.server]
            tasks.append(DescriptionTask(item, similar, list(_choose_shown(served.get(tool_id, {})).values())))
        texts, reasons = await propose_descriptions(model, tasks)
        made = []
        for task in tasks:
            tool_id = task.item.id
            if tool_id in texts:
                item = replace(task.item, description=texts[tool_id])
                made.append(await self._measure(item, rivals.get(tool_id, ()), served, catalogue))
            else:
                made.append(DescriptionProposal(tool_id, task.item.listed_name, reason=reasons[tool_id]))
        return made

    async def _measure(
        self, item: Item, rivals: Collection[str], served: ServedRequests, catalogue: CatalogueFacts
    ) -> DescriptionProposal:
        unmeasured = DescriptionProposal(item.id, item.listed_name, item.description)
        requests = served.get(item.id, {})
        if len(requests) < MIN_REQUESTS:
            return replace(
                unmeasured, reason=f"not measured: needs {MIN_REQUESTS} recorded requests, has {len(requests)}"
            )
        shown = _choose_shown(requests)
        measured_on = [
            (request, tool_id)
            for tool_id in (item.id, *rivals)
            for digest, request in list(served.get(tool_id, {}).items())[1::2]
            if digest not in shown
        ]
        try:
            before, after = await self.trial.compare_texts(measured_on, item, catalogue)
        except Unavailable as error:
            return replace(unmeasured, reason=f"not measured: {error.message}")
        return replace(unmeasured, before=before, after=after, measured_on=len(measured_on))


def _choose_shown(requests: Mapping[str, str]) -> dict[str, str]:
    """The requests that the language model is shown: every second one, in an order by digest, which is as good as
    chance; all of them where there are too few to measure."""
    return dict(list(requests.items())[:: 2 if len(requests) >= MIN_REQUESTS else 1])


def _choose_tools(findings: Sequence[CatalogueFinding]) -> list[str]:
    """The tools that a better description may help, the worst first."""
    ordered = sorted(findings, key=lambda finding: (not finding.is_error, PROPOSED.get(finding.kind, 0)))
    # The other tools of a finding about requests may be right for their own.
    lists = (f.tools[:1] if f.kind is FindingKind.REQUESTS else f.tools for f in ordered if f.kind in PROPOSED)
    return list(dict.fromkeys(tool_id for ids in lists for tool_id in ids))


def _find_rivals(findings: Sequence[CatalogueFinding]) -> dict[str, list[str]]:
    """The tools that each tool is mistaken for."""
    rivals: dict[str, dict[str, None]] = {}
    for finding in findings:
        if finding.kind in (FindingKind.SIMILAR, FindingKind.REQUESTS):
            tool_id, *others = finding.tools
            for one, other in [(tool_id, other) for other in others] + [(other, tool_id) for other in others]:
                rivals.setdefault(one, {})[other] = None
    return {tool_id: list(others) for tool_id, others in rivals.items()}
