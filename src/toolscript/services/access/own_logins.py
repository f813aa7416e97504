"""The logins of one caller at servers with a login per user: the servers that the caller may use, and their states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.logins import LoginState
from toolscript.domain.requests import RequestContext, current_request
from toolscript.domain.servers import ServerSpec
from toolscript.services.access.logins import Logins


class OwnLogins:
    """Callers see the servers that have a tool in their profile, and only their own login there."""

    def __init__(
        self,
        logins: Logins,
        get_specs: Callable[[], Mapping[str, ServerSpec]],
        shows_server: Callable[[str, RequestContext], Awaitable[bool]],
    ) -> None:
        """`get_specs` returns the entries of the servers, `shows_server` whether the caller sees something of one."""
        self._logins = logins
        self._get_specs = get_specs
        self._shows_server = shows_server

    async def list_states(self, user: str) -> Sequence[LoginState]:
        """The user's login at every server with a login per user, by name; none for callers without a name."""
        specs = [spec for _, spec in sorted(self._get_specs().items()) if spec.oauth.per_user] if user else []
        context = current_request()
        visible = [spec for spec in specs if await self._shows_server(spec.name, context)]
        return [await self._logins.find(replace(spec, user=user)) for spec in visible]

    async def get_spec(self, name: str, user: str) -> ServerSpec:
        """The entry of a server, with the user's login. Raises NotFound for a server that is unknown or hidden from the
        caller, and Invalid where the caller's calls use the login of the installation."""
        spec = self._get_specs().get(name)
        if spec is None or not await self._shows_server(name, current_request()):
            raise NotFound(f"no such server: {name!r}", details={"server": name})
        if not spec.oauth.per_user:
            raise Invalid(
                f"server {name} has one login for all: who has the scope `admin` logs in", details={"server": name}
            )
        if not user:
            raise Invalid(
                "without a named key you have no login of your own: your calls use the login of the installation",
                details={"server": name},
            )
        return replace(spec, user=user)
