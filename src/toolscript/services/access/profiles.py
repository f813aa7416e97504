"""The profiles of the configuration, and the profile of a caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolscript.domain.errors import Forbidden, NotFound
from toolscript.domain.profiles import DEFAULT_PROFILE, Profile


class Profiles:
    """Finds profiles by name, key and claim. The configuration replaces all of them at once."""

    def __init__(self) -> None:
        self._by_name: dict[str, Profile] = {}
        self._watchers: list[Callable[[], object]] = []

    def watch(self, watcher: Callable[[], object]) -> None:
        """Calls the watcher whenever the profiles were replaced. It must not raise."""
        self._watchers.append(watcher)

    def replace(self, profiles: Sequence[Profile]) -> None:
        """Makes these the profiles."""
        self._by_name = {profile.name: profile for profile in profiles}
        for watcher in self._watchers:
            watcher()

    def all(self) -> list[Profile]:
        """Every profile, in the order of the configuration."""
        return list(self._by_name.values())

    def find(self, name: str) -> Profile | None:
        """The profile of that name. Where there is no default profile, the default is None: everything.

        Raises NotFound for any other name, also for one that a new configuration has removed.
        """
        profile = self._by_name.get(name)
        if profile is None and name != DEFAULT_PROFILE:
            raise NotFound(
                f"no such profile: {name!r}: the configuration names those that exist under `profiles`",
                details={"profile": name},
            )
        return profile

    def require(self, name: str) -> None:
        """Raises NotFound for a name that no profile has, with the existing names: for the owner, who may know them."""
        try:
            self.find(name)
        except NotFound as error:
            names = ", ".join(sorted({DEFAULT_PROFILE, *self._by_name}))
            raise NotFound(f"{error.message}. There are: {names}", details=error.details) from None

    def choose(self, requested: str | None, *, key: str | None, claims: Mapping[str, Any] | None = None) -> str:
        """The name of a caller's profile: from its key or claims, else the requested profile, else the default.

        Raises NotFound for an unknown one, Forbidden for a requested one that is for others.
        """
        allowed = [known.name for known in self._by_name.values() if _is_for(known, key, claims or {})]
        if requested is None:
            return allowed[0] if allowed else DEFAULT_PROFILE
        profile = self.find(requested)
        if requested not in allowed and (allowed or (profile and (profile.keys or profile.claims))):
            mine = f"yours is {allowed[0]!r}" if allowed else "it is for certain keys or users"
            raise Forbidden(f"you may not use the profile {requested!r}: {mine}", details={"profile": requested})
        return requested


def _is_for(profile: Profile, key: str | None, claims: Mapping[str, Any]) -> bool:
    return key in profile.keys or any(not values.isdisjoint(_list(claims.get(name))) for name, values in profile.claims)


def _list(value: Any) -> list[str]:
    """The values of a claim. A claim is a list, or a string with values between spaces."""
    parts = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return [part for part in parts if isinstance(part, str)]
