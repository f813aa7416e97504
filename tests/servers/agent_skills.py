"""A server and a client of fastmcp for agent skills (SEP-2640), in an environment of their own.

python agent_skills.py serve FOLDER        (over stdio)
python agent_skills.py read URL            (prints what a client reads, as JSON)
"""

from __future__ import annotations

import asyncio
import json
import sys


def serve(folder: str) -> None:
    from fastmcp import FastMCP
    from fastmcp.skills.provider import SkillsDirectoryProvider

    server: FastMCP = FastMCP("Skills")
    server.add_provider(SkillsDirectoryProvider(folder, reload=True))

    @server.tool  # type: ignore[untyped-decorator]
    def add(first: int, second: int) -> int:
        """Adds two numbers."""
        return first + second

    server.run(show_banner=False)


async def read(url: str) -> None:
    from fastmcp import Client
    from fastmcp.skills import SkillsClientExtension

    async with Client(url, extensions=[SkillsClientExtension()]) as client:
        listed = await client.list_skills()
        entries = [await client.get_skill(each.uri) for each in listed]
        files = {each.uri: (await client.read_skill(each.uri)).files for each in listed}
    found = {
        entry.uri: {
            "frontmatter": entry.frontmatter.root,
            "is_as_listed": entry == each,
            "files": {path: content.hex() for path, content in files[entry.uri].items()},
        }
        for entry, each in zip(entries, listed, strict=True)
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        asyncio.run(read(sys.argv[2]))
