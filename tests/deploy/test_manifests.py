"""Manifests are rendered by kubectl, fit the schemas of Kubernetes, and fit what they deploy."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway import safety
from gateway.configuration import read_file
from gateway.settings import Settings

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
sys.path.insert(0, str(KUBERNETES))

import replay_hpa  # noqa: E402

VARIANTS = ("base", "cuda", "keda", "gateway-api")
OTHER_KINDS = {
    # Of operators: the fields without which their own schemas refuse them.
    "ServiceMonitor": {"selector", "endpoints"},
    "ScaledObject": {"scaleTargetRef", "triggers"},
    "Gateway": {"gatewayClassName", "listeners"},
    "HTTPRoute": {"parentRefs", "rules"},
    "BackendTrafficPolicy": {"targetRefs", "loadBalancer"},
}


@pytest.fixture(scope="module")
def rendered(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kubernetes")
    found = {}
    for variant in VARIANTS:
        command = [str(tools / "kubectl"), "kustomize", str(KUBERNETES / variant)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found[variant] = folder / f"{variant}.yaml"
        found[variant].write_text(done.stdout)
    return found


def objects(path: Path) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


@pytest.mark.deploy
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_rendered_fits_the_schemas(
    tools: Path, rendered: dict[str, Path], variant: str
) -> None:
    command = [str(tools / "kubernetes-validate"), "--strict", "-k", "1.33.0"]
    done = subprocess.run(
        [*command, str(rendered[variant])], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for kind, each in objects(rendered[variant]).items():
        if kind in OTHER_KINDS:
            assert set(each["spec"]) >= OTHER_KINDS[kind]
        else:
            assert f"kind {kind} " not in said, "there was no schema for it"


@pytest.mark.deploy
def test_what_is_rendered_hangs_together(rendered: dict[str, Path]) -> None:
    base = objects(rendered["base"])
    pod = base["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = base[kind]["spec"]
        selector = spec.get("podSelector", spec.get("selector", {}))
        assert selector.get("matchLabels", selector).items() <= labels, kind
    monitor = base["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= base["Service"]["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    assert container["ports"][0]["name"] == base["Service"]["spec"]["ports"][0]["targetPort"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
    cuda = objects(rendered["cuda"])["Deployment"]["spec"]["template"]["spec"]
    assert cuda["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert cuda["initContainers"][0]["image"] == cuda["containers"][0]["image"]
    model = next(m for m in cuda["containers"][0]["volumeMounts"] if m["name"] == "model")
    assert model["readOnly"]
    assert "HorizontalPodAutoscaler" not in objects(rendered["keda"])
    assert "Ingress" not in objects(rendered["gateway-api"])


def test_the_configuration_is_one_that_a_gateway_takes(tmp_path: Path) -> None:
    document = yaml.safe_load((KUBERNETES / "base" / "configuration.yaml").read_text())
    path = tmp_path / "voxgate.toml"
    path.write_text(document["data"]["voxgate.toml"])
    values = read_file(path)
    for name in ("keys_file", "token_secret_file"):
        secret = tmp_path / name
        secret.write_text("{}")
        secret.chmod(0o440)
        assert str(values[name]).startswith("/run/secrets/")
        values[name] = str(secret)
    settings = Settings(**values)  # type: ignore[arg-type]
    safety.check(settings)
    deployment = yaml.safe_load((KUBERNETES / "base" / "deployment.yaml").read_text())
    spec = deployment["spec"]["template"]["spec"]
    hook = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = spec["terminationGracePeriodSeconds"]
    assert hook + settings.drain_seconds < grace - 5, "killed before it has drained"
    for probe in ("startupProbe", "readinessProbe"):
        timeout = spec["containers"][0][probe]["timeoutSeconds"]
        assert timeout > settings.ready_deadline_seconds


def test_compose_names_what_there_is() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            known = (ROOT / "deploy" / source).exists() if source[0] == "." else None
            assert known or source in compose["volumes"], f"{name}: {volume}"
        for secret in service.get("secrets", ()):
            assert secret in compose["secrets"]
        assert "no-new-privileges:true" in service["security_opt"]
    environment = compose["services"]["gateway-1"]["environment"]
    Settings.from_env(dict(environment.items()))
    script = (ROOT / "deploy" / "secrets.sh").read_text()
    for secret in compose["secrets"].values():
        assert secret["file"].removeprefix("./") in script


def test_the_image_copies_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        pattern.rstrip("*")
        for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    dockerfile = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text()
    proof = (ROOT / "deploy" / "image" / "prove.sh").read_text()
    for package in packages:
        assert f"COPY {package} {package}" in dockerfile
        assert f"!{package}\n" in ignored
        assert f" {package} " in proof
    assert "USER 10001:10001" in dockerfile


@pytest.mark.deploy
def test_the_dockerfile_is_clean(tools: Path) -> None:
    done = subprocess.run(
        [str(tools / "hadolint"), str(ROOT / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


class TestReplay:
    def scaler(self) -> replay_hpa.Autoscaler:
        return replay_hpa.read_autoscaler(KUBERNETES / "base" / "autoscaler.yaml")

    def load(self, *demands: float, every: float = 15.0) -> list[dict[str, float]]:
        return [
            {"seconds": i * every, "admission_demand": d, "admission_capacity": 10.0}
            for i, d in enumerate(demands)
        ]

    def test_a_steady_load_changes_nothing(self) -> None:
        curve = replay_hpa.replay(
            self.load(*[14.0] * 100), self.scaler(), times=1, start_seconds=45
        )
        assert {each["replicas"] for each in curve} == {2}

    def test_it_grows_within_the_policies_and_shrinks_slowly(self) -> None:
        load = self.load(*[14.0] * 4, *[100.0] * 20, *[5.0] * 200)
        curve = replay_hpa.replay(load, self.scaler(), times=1, start_seconds=30)
        replicas = [int(each["replicas"]) for each in curve]
        # 100 streams at a pressure of 0.7 take 15 replicas of 10.
        assert max(replicas) == 15
        for before, after in zip(replicas, replicas[2:], strict=False):
            assert after <= max(2 * before, before + 2), "at most doubled in 30 s"
        fall = replicas[24:]
        assert fall[: 300 // 15] == [15] * (300 // 15), "the window keeps them for 300 s"
        assert all(a - b in (0, 1) for a, b in itertools.pairwise(fall))
        assert replicas[-1] == 2

    @given(st.lists(st.floats(0, 500), min_size=1, max_size=60))
    def test_it_never_leaves_its_bounds(self, demands: list[float]) -> None:
        curve = replay_hpa.replay(self.load(*demands), self.scaler(), times=1, start_seconds=45)
        for each in curve:
            assert 2 <= each["replicas"] <= 20
            assert 1 <= each["ready"] <= each["replicas"]


def test_the_ingress_routes_as_nginx_does() -> None:
    values = yaml.safe_load((KUBERNETES / "ingress-nginx.yaml").read_text())
    snippet = values["controller"]["config"]["http-snippet"]
    ours = (ROOT / "deploy" / "nginx" / "nginx.conf").read_text()
    found = ours[ours.index("map $arg_route") :]
    assert snippet.split() == found[: found.index("}") + 1].split()
    ingress = yaml.safe_load((KUBERNETES / "base" / "ingress.yaml").read_text())
    by = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/upstream-hash-by"]
    assert by == "$voxgate_route"
