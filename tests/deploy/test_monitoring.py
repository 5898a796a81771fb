"""Dashboards, alerts and runbooks speak of metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from gateway_conftest import Run
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
KUBERNETES = ROOT / "deploy" / "kubernetes"
NAME = re.compile(r"\b(?:voxgate|process)_[a-z0-9_]+\b")
CERTIFICATES = ROOT / "tests" / "production" / "certificates"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


async def samples(run: Run) -> set[str]:
    """Names of all samples of `/metrics`, of a gateway that has done something."""
    async with run() as running:
        async with running.client() as client:
            async for _ in client.speak("One sentence."):
                pass
        async with httpx.AsyncClient() as http:
            page = (await http.get(running.url + "/metrics")).text
    names = set()
    for family in text_string_to_metric_families(page):
        names |= {sample.name for sample in family.samples}
        # Counters with labels have no sample before they count; their name is told all the same.
        if family.type == "counter":
            names.add(family.name + "_total")
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    # Only with TLS of its own.
    return names | {"voxgate_certificate_expiry_seconds"}


async def test_every_metric_that_is_asked_for_exists(run: Run) -> None:
    there = await samples(run)
    dashboard = json.loads((GRAFANA / "dashboards" / "voxgate.json").read_text())
    asked = {
        "alerts": [rule["expr"] for rule in rules()],
        "dashboard": [t["expr"] for p in dashboard["panels"] for t in p.get("targets", ())],
        "adapter": re.findall(
            r"(?:seriesQuery|metricsQuery): .*|^ +histogram.*\n.*",
            (KUBERNETES / "prometheus-adapter.yaml").read_text(),
            re.MULTILINE,
        ),
        "keda": re.findall(r"query: (.*)", (KUBERNETES / "keda" / "scaledobject.yaml").read_text()),
    }
    for where, queries in asked.items():
        names = set(NAME.findall(" ".join(queries)))
        assert names, where
        assert names <= there, f"{where}: {names - there}"


def test_the_dashboard_is_that_of_its_code(tmp_path: Path) -> None:
    sys.path.insert(0, str(GRAFANA))
    import make_dashboard

    made = json.dumps(make_dashboard.dashboard(), indent=1) + "\n"
    assert (GRAFANA / "dashboards" / "voxgate.json").read_text() == made
    places = [tuple(p["gridPos"].values()) for p in make_dashboard.dashboard()["panels"]]
    assert len(set(places)) == len(places)


def test_every_alert_has_a_runbook_and_a_test() -> None:
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    runbooks = re.findall(
        r"^### (Voxgate\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE
    )
    assert sorted(runbooks) == sorted(alerts)
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")
    tested = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    fires = {
        case["alertname"]
        for test in tested
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    quiet = {
        case["alertname"]
        for test in tested
        for case in test["alert_rule_test"]
        if not case["exp_alerts"]
    }
    assert fires == quiet == set(alerts)


@pytest.mark.deploy
def test_the_rules_do_what_their_tests_say(tools: Path) -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [str(tools / "promtool"), *command],
            cwd=PROMETHEUS,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deploy
def test_every_query_is_promql(tools: Path, tmp_path: Path) -> None:
    """Those of the dashboard, of prometheus-adapter and of KEDA, with their variables filled in."""
    dashboard = json.loads((GRAFANA / "dashboards" / "voxgate.json").read_text())
    queries = [t["expr"] for p in dashboard["panels"] for t in p.get("targets", ())]
    scaled = yaml.safe_load((KUBERNETES / "keda" / "scaledobject.yaml").read_text())
    queries += [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    adapter = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())
    for rule in adapter["rules"]["custom"]:
        queries += [rule["seriesQuery"], rule["metricsQuery"]]
    assert len(queries) > 20
    filled = {
        "$__rate_interval": "5m",
        "$instance": ".*",
        "$job": "voxgate",
        "<<.LabelMatchers>>": 'pod="a"',
        "<<.GroupBy>>": "pod",
    }
    rules = []
    for number, query in enumerate(queries):
        plain = query
        for name, value in filled.items():
            plain = plain.replace(name, value)
        assert "$" not in plain
        rules.append({"record": f"query:{number}", "expr": plain})
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    command = [str(tools / "promtool"), "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout
    rules[0]["expr"] += ")"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
