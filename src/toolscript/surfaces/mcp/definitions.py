"""The tools of the MCP surface and the instructions that agents read before their first call.

These descriptions alone must enable an agent to find, understand and call any tool behind the gateway. They are
short, because their tokens are part of every agent's context.
"""

from __future__ import annotations

from mcp_types import Tool, ToolAnnotations

from toolscript.surfaces.mcp.arguments import (
    CallToolArguments,
    DescribeToolArguments,
    SearchDocumentsArguments,
    SearchKnowledgeArguments,
    SearchSkillsArguments,
    SearchToolsArguments,
    ToolArguments,
)

INSTRUCTIONS = (
    "Many MCP servers are behind this one. Do not guess tool names. First call search_tools with what you want to "
    "do; then call_tool with the id and arguments of the best result. If a result's signature is not enough, "
    "describe_tool returns the whole schema. If the results are of the wrong kind, search_skills lists areas of work "
    "for search_tools to search in. search_documents searches the user's own documents; search_knowledge books and "
    "papers, to answer with sources."
)


def _build_tool(name: str, title: str, arguments: type[ToolArguments], description: str) -> Tool:
    annotations = ToolAnnotations(title=title, read_only_hint=True, open_world_hint=False)
    return Tool(name=name, description=description, input_schema=arguments.input_schema(), annotations=annotations)


TOOLS = [
    _build_tool(
        "search_tools",
        "Search tools",
        SearchToolsArguments,
        "Find the right tool for a task among all connected servers (tools, prompts and resources). Describe what you "
        "want to do in plain words, for example 'read a text file' or 'create an issue on GitHub'; a tool's name, "
        "even mistyped, works too. Each result has the id to call, a confidence from 0 to 1, the signature and a "
        "short description. No result means that no tool here does that: rephrase once, then give up. `query` alone "
        "is nearly always enough.",
    ),
    _build_tool(
        "search_skills",
        "Search skills",
        SearchSkillsArguments,
        "Find the skills (areas of work) that fit a task, with the number of their tools: to see what is possible "
        "here, or when search_tools finds tools of the wrong kind. Each result has the skill's id, a score from 0 to "
        "1, the number of its tools and a description. Then call search_tools with the best ids as `skill_ids`.",
    ),
    _build_tool(
        "describe_tool",
        "Describe a tool",
        DescribeToolArguments,
        "Get everything about one tool before you call it: its full description and the JSON schemas of its arguments "
        "and its result. Needed only when the signature in a search result is not enough.",
    ),
    Tool(
        name="call_tool",
        description=(
            "Call a tool that search_tools has found. `arguments` is an object with the parameters of its signature; "
            "those with a question mark are optional. A prompt returns its messages, a resource its contents. Wrong "
            "arguments are refused with the name of the field; the tool's own errors are returned unchanged."
        ),
        input_schema=CallToolArguments.input_schema(),
        annotations=ToolAnnotations(title="Call a tool"),
    ),
    _build_tool(
        "search_documents",
        "Search documents",
        SearchDocumentsArguments,
        "Find passages in the user's own documents. Each result has the document's id, a score, its title and the "
        "best passage.",
    ),
    _build_tool(
        "search_knowledge",
        "Search knowledge",
        SearchKnowledgeArguments,
        "Search the books and papers of the library: passages (chunks), and decisions, patterns or warnings extracted "
        "from them (extractions). Cite what you use: each result has title, authors, chapter, section, page.",
    ),
]
