"""The dashboard and the alert rules of deploy/ name metrics, labels and routes that gateways export."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.generate import ROOT
from toolscript.adapters.observability.prometheus import PrometheusMetrics
from toolscript.domain.servers import ServerState, ServerStatus, Transport
from toolscript.surfaces.http.app import ROUTES

pytestmark = pytest.mark.req("D-10")

FOLDER = ROOT / "deploy" / "monitoring"
METRIC = re.compile(r"\b(?:toolscript|process|python)_[a-z_]+")
# What Prometheus adds to a metric.
ADDED_LABELS = {"job", "instance"}


def load_alerts() -> list[dict[str, Any]]:
    yaml: Any = import_module("yaml")
    content = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in content["groups"] for rule in group["rules"]]


def load_dashboard() -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return dashboard


def load_expressions() -> list[str]:
    """Every query of the dashboard, and every condition of an alert."""
    targets = [target["expr"] for panel in load_dashboard()["panels"] for target in panel["targets"]]
    return targets + [rule["expr"] for rule in load_alerts()]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of every metric that a gateway exports."""
    metrics = PrometheusMetrics()
    metrics.count_request("GET", "/search", 200, 0.01)
    metrics.record({"type": "tools.call", "server": "x", "arguments_checked": False, "error": None})
    search = {"type": "knowledge.search", "degraded": ["index"], "timings_ms": {"rank": 1.0}, "error": None}
    metrics.record(search)
    metrics.watch_drops(lambda: 0)
    metrics.watch_servers(lambda: [ServerStatus("x", Transport.STDIO, ServerState.READY, items={"tool": 1})])
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_that_is_named_is_exported(exported: dict[str, set[str]]) -> None:
    named = {metric for expression in load_expressions() for metric in METRIC.findall(expression)}
    assert named - exported.keys() == set()
    own = {name for name in exported if name.startswith("toolscript_") and not name.endswith("_created")}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in own}
    assert families - {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} == set()


def test_every_label_that_is_named_is_one_of_the_metric(exported: dict[str, set[str]]) -> None:
    for expression in load_expressions():
        for metric, selectors in re.findall(r"\b((?:toolscript|process)_[a-z_]+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selectors))
            assert labels <= exported[metric] | ADDED_LABELS, expression
        metrics = METRIC.findall(expression)
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            known = ADDED_LABELS.union(*(exported[metric] for metric in metrics))
            assert {label.strip() for label in labels.split(",")} <= known, expression


def test_every_route_that_an_alert_names_exists() -> None:
    routes = {route.path_format for route in ROUTES}
    for rule in load_alerts():
        for pattern in re.findall(r'route=~"([^"]+)"', rule["expr"]):
            assert set(pattern.split("|")) <= routes


def test_parentheses_and_quotes_are_balanced() -> None:
    for expression in load_expressions():
        for left, right in ("()", "[]", "{}"):
            assert expression.count(left) == expression.count(right), expression
        assert expression.count('"') % 2 == 0


def test_every_alert_has_a_severity_and_a_summary() -> None:
    rules = load_alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]


def test_panels_have_titles_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = load_dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert place["x"] + place["w"] <= 24
        assert cells.isdisjoint(taken)
        taken |= cells
