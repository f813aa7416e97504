"""What an agent reads before it has asked anything: the tools of the MCP surface and how they go together.

An agent that has seen nothing but these descriptions must be able to find, understand and call any tool behind the
gateway. They are kept short on purpose: every word of them is paid for in the context of every agent, always.
"""

from __future__ import annotations

from typing import Any

from mcp_types import Tool, ToolAnnotations

from toolscript.domain.catalog import ItemType
from toolscript.services.documents.search import SearchType
from toolscript.services.knowledge.search import DEFAULT_HITS, MAX_HITS
from toolscript.services.tools.hierarchical_search import Strategy

MOST_RESULTS = 20
DEFAULT_RESULTS = 5
MOST_SKILL_IDS = 10
# The search by meaning, words and names together, which knows nothing of skills.
STANDARD = "standard"
STRATEGIES = (STANDARD, *(strategy.value for strategy in Strategy))
TYPES = tuple(kind.value for kind in ItemType)
SEARCH_TYPES = tuple(kind.value for kind in SearchType)

INSTRUCTIONS = (
    "Many MCP servers are behind this one. Do not guess tool names. First call search_tools with what you want to "
    "do; then call_tool with the id and arguments of the best result. When a result's signature does not tell "
    "enough, describe_tool gives the whole schema. When the results are of the wrong kind, search_skills tells which "
    "areas of work there are, for search_tools to look inside. search_documents looks into the user's own documents; "
    "search_knowledge into books and papers, to answer with sources."
)

TOOL_ID = {"type": "string", "description": "An id from search_tools: server__tool."}


def _limit(of: str, default: int = DEFAULT_RESULTS, most: int = MOST_RESULTS) -> dict[str, Any]:
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": most,
        "default": default,
        "description": f"Most {of}.",
    }


def _words(what: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": what}


TOOLS = [
    Tool(
        name="search_tools",
        description=(
            "Find the right tool for a task among all connected servers (tools, prompts and resources). Say what you "
            "want to do in plain words, for example 'read a text file' or 'create an issue on GitHub'; a tool's name, "
            "even mistyped, works too. Each result has the id to call, a confidence from 0 to 1, the signature and a "
            "short description. No result means that nothing here does that: say it in other words once, then give "
            "up. `query` alone is nearly always enough."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, or its name."},
                "limit": _limit("results"),
                "type": {"type": "string", "enum": list(TYPES), "description": "Only these. Without it, all."},
                "skill_ids": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": MOST_SKILL_IDS,
                    "description": "Look only inside these skills (ids from search_skills), by meaning.",
                },
                "strategy": {
                    "type": "string",
                    "enum": list(STRATEGIES),
                    "default": STANDARD,
                    "description": (
                        "standard: by meaning, words and names. hierarchical: by meaning, inside the skills that fit "
                        "the query. direct: by meaning, everywhere. hybrid: the best of these two."
                    ),
                },
            },
            "required": ["query"],
        },
        annotations=ToolAnnotations(title="Search tools", read_only_hint=True, open_world_hint=False),
    ),
    Tool(
        name="search_skills",
        description=(
            "Which skills (areas of work) fit a task, and how many tools each has: to see what is possible here, or "
            "when search_tools finds tools of the wrong kind. Each result has the skill's id, a score from 0 to 1, "
            "the number of its tools and what it is about. Then call search_tools with the best ids as `skill_ids`."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The task, or the area of work, in plain words."},
                "limit": _limit("skills"),
            },
            "required": ["query"],
        },
        annotations=ToolAnnotations(title="Search skills", read_only_hint=True, open_world_hint=False),
    ),
    Tool(
        name="describe_tool",
        description=(
            "Everything about one tool before you call it: its full description and the JSON schemas of its arguments "
            "and its answer. Needed only when the signature in a search result leaves a question open."
        ),
        input_schema={
            "type": "object",
            "properties": {"tool_id": TOOL_ID},
            "required": ["tool_id"],
        },
        annotations=ToolAnnotations(title="Describe a tool", read_only_hint=True, open_world_hint=False),
    ),
    Tool(
        name="call_tool",
        description=(
            "Call a tool that search_tools has found. `arguments` is an object with the parameters of its signature; "
            "those with a question mark may be left out. A prompt answers its messages, a resource its contents. "
            "Wrong arguments are refused with the name of the field; the tool's own errors come back as they are."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "tool_id": TOOL_ID,
                "arguments": {"type": "object", "description": "The tool's arguments.", "additionalProperties": True},
            },
            "required": ["tool_id"],
        },
        annotations=ToolAnnotations(title="Call a tool"),
    ),
    Tool(
        name="search_documents",
        description=(
            "Find passages in the user's own documents. Each result has the document's id, a score, its title and the "
            "passage that fits best."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": _limit("documents"),
                "search_type": {
                    "type": "string",
                    "enum": list(SEARCH_TYPES),
                    "default": SearchType.HYBRID.value,
                    "description": "By meaning, by words, or both.",
                },
                "filters": {
                    "type": "object",
                    "description": 'Metadata it must have: {"team": "sales", "year": {"gte": 2024}}.',
                },
            },
            "required": ["query"],
        },
        annotations=ToolAnnotations(title="Search documents", read_only_hint=True, open_world_hint=False),
    ),
    Tool(
        name="search_knowledge",
        description=(
            "Find what the books and papers of the library say: passages (chunks) and decisions, patterns or warnings "
            "read out of them (extractions). Cite what you use: each result has title, authors, chapter, section, page."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The question, in plain words."},
                "limit": _limit("results", DEFAULT_HITS, MAX_HITS),
                "type": _words("Only these: chunk, extraction, or a type such as warning."),
                "topics": _words("Only what is about any of these."),
            },
            "required": ["query"],
        },
        annotations=ToolAnnotations(title="Search knowledge", read_only_hint=True, open_world_hint=False),
    ),
]
