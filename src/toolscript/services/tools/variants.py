"""Groups tools of equal definition that are the same tool: tools of servers with the same package and arguments. Two
servers for different folders have different tools, and the hits say which folder.

Servers without an entry in the configuration count as the same one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from toolscript.domain.catalog import get_server
from toolscript.domain.redaction import REDACTED, is_secret_argument, redact_arguments, redact_text
from toolscript.domain.servers import ServerSpec
from toolscript.retrieval.catalogue import CatalogueFacts
from toolscript.services.catalogue.visibility import View

MAX_CHARACTERS = 120
# A path or an address.
_PLACE = re.compile(r"~|\.{0,2}[/\\]|[A-Za-z]:[/\\]|[a-z][a-z0-9+.-]*://")
# A shorter value of a secret variable would hide parts of ordinary words.
MIN_SECRET = 4


class Variants:
    """Folds variants into one hit, and says in what tools of equal definition differ."""

    def __init__(
        self,
        find_spec: Callable[[str], ServerSpec | None] = lambda _: None,
        get_position: Callable[[str], int] = lambda _: 0,
        get_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`find_spec` returns the entry of a server, `get_position` its position in the configuration. `get_version`
        returns another number after each change of them."""
        self._find_spec = find_spec
        self._get_position = get_position
        self.get_version = get_version

    def fold(self, ranked: Sequence[tuple[str, float]], catalogue: CatalogueFacts) -> list[tuple[str, float]]:
        """The ranking with the first of each tool's variants."""
        return catalogue.fold_variants(ranked, self._get_key)

    def list_ids(self, item_id: str, catalogue: CatalogueFacts, view: View) -> tuple[str, ...]:
        """The other variants of a tool that the caller may see, in the order of the configuration."""
        others = catalogue.list_variants(item_id, self._get_position, self._get_key)
        return tuple(i for i in others if view.shows(i))

    def list_groups(self, catalogue: CatalogueFacts) -> Iterator[tuple[list[str], bool]]:
        """The groups of tools with equal definitions, and whether searches show one of the group or, as their servers
        have different arguments, each."""
        for group in dict.fromkeys(catalogue.variants.values()):
            by_origin: dict[tuple[str, ...], list[str]] = {}
            for item_id in sorted(group, key=lambda member: (self._get_position(get_server(member)), member)):
                by_origin.setdefault(self._get_origin(item_id), []).append(item_id)
            yield from ((ids, True) for ids in by_origin.values() if len(ids) > 1)
            if len(by_origin) > 1:
                yield [ids[0] for ids in by_origin.values()], False

    def describe_arguments(self, item_id: str, catalogue: CatalogueFacts) -> str:
        """The folders, files and addresses that distinguish a tool's server from the servers of equal tools, without
        secrets; empty if there are none. Other arguments are not shown: nothing tells a secret without a flag from a
        word."""
        spec, origin = self._find_spec(get_server(item_id)), self._get_origin(item_id)
        origins = {self._get_origin(i) for i in catalogue.variants.get(item_id, ())} - {origin, ()}
        if spec is None or not origins:
            return ""
        shared = frozenset.intersection(*map(frozenset, origins))
        *args, url = origin[1:]
        given = [*args, url.partition("?")[0]]
        named = {**spec.env, **spec.headers}
        secrets = [value for name, value in named.items() if is_secret_argument(name) and len(value) >= MIN_SECRET]
        shown = redact_arguments(given, secrets=sorted(secrets, key=len, reverse=True))
        distinct: list[str] = []
        for text, raw in zip(shown, given, strict=True):
            if text == REDACTED:
                distinct = distinct[:-1] if distinct and distinct[-1].startswith("-") else distinct
            elif raw not in shared and _PLACE.match(raw):
                distinct.append(text)
        return redact_text(" ".join(" ".join(distinct).split()))[:MAX_CHARACTERS]

    def _get_key(self, item_id: str) -> tuple[str, ...]:
        """What tools of equal definition have in common that are the same tool: also the arguments that the
        configuration fixes."""
        spec = self._find_spec(get_server(item_id))
        fixed = {name: tool.fixed for name, tool in spec.tools.items() if tool.fixed} if spec else {}
        return *self._get_origin(item_id), json.dumps(fixed, sort_keys=True)

    def _get_origin(self, item_id: str) -> tuple[str, ...]:
        spec = self._find_spec(get_server(item_id))
        return spec.origin if spec else ()
