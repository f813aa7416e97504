"""Approval in the entry of a server: read, or refused with the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.files import load_configuration
from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("G-13")

RULE = 'mcpServers.git.approval: must be "never", "destructive" or "writes"'


def load(folder: Path, **more: Any) -> ServerSpec:
    entry = {"command": "run", **more}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": {"git": entry}}))
    (spec,) = load_configuration(home=folder, folder=folder, environment={}).servers
    return spec


def test_a_server_says_which_of_its_tools_need_approval(tmp_path: Path) -> None:
    for policy in ApprovalPolicy:
        assert load(tmp_path, approval=policy.value).approval is policy
    assert load(tmp_path, approval=None).approval is ApprovalPolicy.NEVER
    assert load(tmp_path).approval is ApprovalPolicy.NEVER
    # What it needs changes nothing that it offers: its tools are not listed again.
    assert load(tmp_path, approval="writes").digest == load(tmp_path).digest


@pytest.mark.parametrize("value", ["write", "Writes", "", True, ["writes"], 1])
def test_an_unknown_policy_is_refused_with_its_key(tmp_path: Path, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        load(tmp_path, approval=value)
    assert RULE in refused.value.message


def test_keys_of_other_clients_are_not_taken_for_ours(tmp_path: Path) -> None:
    assert load(tmp_path, autoApprove=["read"], alwaysAllow=[], requireApproval=True).approval is ApprovalPolicy.NEVER
    with pytest.raises(Invalid, match='did you mean "approval"'):
        load(tmp_path, aproval="writes")


def test_an_unknown_policy_of_the_gateway_is_refused() -> None:
    assert load_settings(variables={"TOOLSCRIPT_APPROVAL": "destructive"}).approval == "destructive"
    with pytest.raises(Invalid, match="TOOLSCRIPT_APPROVAL=always: expected one of never, destructive, writes"):
        load_settings(variables={"TOOLSCRIPT_APPROVAL": "always"})
