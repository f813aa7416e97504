"""The worker process that checks arguments: one JSON object per line in, one per line out.

A request has `digest`, `arguments`, `references` (whether references of the schema must lead somewhere), `seconds` (of
processor time), and `schema` when the worker does not have it yet. The reply is `{}` for valid arguments, `{"field": …,
"message": …}` for the worst problem, `{"unusable": …}` for an unusable schema, and `{"unknown": true}` when the schema
is needed.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from toolscript.adapters.workers.limits import limit_worker
from toolscript.domain.lru_cache import LruCache

MAX_VALIDATORS = 512
MAX_MESSAGE_LENGTH = 300
MEMORY_BYTES = 2**30
# Ends a worker whose gateway was killed while it checks; a gateway ends it sooner.
MAX_SECONDS = 25.0


def main() -> None:
    """Answers requests until standard input ends."""
    limit_worker(memory_bytes=MEMORY_BYTES)
    checks = Checks()
    print("{}", flush=True)  # noqa: T201  (ready)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _limit_seconds(request["seconds"], MAX_SECONDS)
        reply = json.dumps(checks.answer(request))
        _limit_seconds(0, 0)
        print(reply, flush=True)  # noqa: T201


def _limit_seconds(processor_time: float, elapsed: float) -> None:
    """Ends the process by SIGPROF or SIGALRM after that time; 0 is no limit."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, processor_time)
        signal.setitimer(signal.ITIMER_REAL, elapsed)


class Checks:
    """Compiled schemas, by digest; the least recently used schemas are dropped."""

    def __init__(self) -> None:
        self._validators: LruCache[str, Any] = LruCache(MAX_VALIDATORS)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request. Raises nothing: an unusable schema is reported."""
        digest = request["digest"]
        try:
            if "schema" in request:
                self._validators.keep(digest, build_validator(request["schema"]))
            validator = self._validators.find(digest)
            if validator is None:
                return {"unknown": True}
            if request["references"] and (lost := _find_lost_reference(validator)):
                return {"unusable": f"the reference {_shorten(lost)!r} leads to no schema within it"}
            problem = best_match(validator.iter_errors(request["arguments"]))
            field = _find_field(problem) if problem else ""
        except Exception as error:  # noqa: BLE001  (a schema may make the validator fail in any way)
            return {"unusable": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:MAX_MESSAGE_LENGTH]}
        if problem is None:
            return {}
        return {"field": _shorten(field), "message": _shorten(problem.message)}


def build_validator(schema: dict[str, Any]) -> Any:
    """A validator for a schema. It does not follow external references. Raises SchemaError."""
    chosen = validator_for(schema, default=Draft202012Validator)
    chosen.check_schema(schema)
    # Patterns are left to the tool's own server: schemas are written for ECMAScript's regular expressions.
    changed = extend(chosen, {"pattern": _accept_all, "uniqueItems": _check_unique})  # type: ignore[no-untyped-call]
    return changed(schema, registry=Registry())


def _find_lost_reference(validator: Any) -> str | None:
    """A reference that leads to no schema, if there is one: arguments would not be checked where it is needed. Follows
    the others, as the validator does."""
    specification = specification_with(validator.ID_OF(validator.META_SCHEMA))
    root = specification.create_resource(validator.schema)
    address = root.id() or ""
    registry: Registry[Any] = SPECIFICATIONS.with_resource(address, root)
    with suppress(AttributeError, TypeError):  # it cannot read some valid schemas; then it tries again for each anchor
        registry = registry.crawl()
    parts: list[tuple[dict[str, Any], Any]] = [(validator.schema, registry.resolver(address))]
    seen: set[int] = set()
    while parts:
        part, resolver = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        for reference in (part[name] for name in ("$ref", "$dynamicRef") if isinstance(part.get(name), str)):
            if (target := _look_up(resolver, reference)) is None:
                return str(reference)
            if isinstance(target.contents, dict):
                parts.append((target.contents, target.resolver))
        within = [each for each in specification.subresources_of(part) if isinstance(each, dict)]
        parts += [(each, resolver.in_subresource(specification.create_resource(each))) for each in within]
    return None


def _look_up(resolver: Any, reference: str) -> Any:
    """What a reference leads to; None if that is no schema."""
    try:
        found = resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError):  # all but the first for a path through what has none
        return None
    return found if isinstance(found.contents, dict | bool) else None


def _accept_all(*_: object) -> None:
    return None


def _check_unique(_: Any, is_unique: object, items: object, __: object) -> Iterable[ValidationError]:
    """Compares items by their text. jsonschema compares each with each: 3 000 objects take minutes."""
    if is_unique is True and isinstance(items, list):
        texts = {json.dumps(_unify_numbers(item), sort_keys=True) for item in items}
        if len(texts) < len(items):
            yield ValidationError(f"{items!r} has non-unique elements")


def _unify_numbers(value: Any) -> Any:
    """JSON has one kind of number: 1.0 and 1 are equal."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _unify_numbers(each) for name, each in value.items()}
        case list():
            return [_unify_numbers(each) for each in value]
        case _:
            return value


def _shorten(message: str) -> str:
    """Cuts out the middle: a message begins with the given value and ends with what is wrong."""
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:40]}…{message[40 - MAX_MESSAGE_LENGTH :]}"


def _find_field(problem: Any) -> str:
    path = [str(part) for part in problem.absolute_path]
    if problem.validator == "required":
        missing = [name for name in problem.validator_value if name not in problem.instance]
        path += missing[:1]
    if problem.validator == "additionalProperties":
        known = problem.schema.get("properties", {})
        path += [name for name in problem.instance if name not in known][:1]
    return ".".join(path)
