"""Manifests are rendered by kubectl, fit the schemas of Kubernetes, and fit what they deploy."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from functools import partial
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

VARIANTS = ("base", "cuda", "object-store", "keda", "gateway-api")
OPERATORS = ROOT / "tests" / "deploy" / "operators"
MODELS = {
    "ServiceMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "ScaledObject": "keda/keda.sh/v1alpha1",
    "Gateway": "gateway-api/gateway.networking.k8s.io/v1",
    "HTTPRoute": "gateway-api/gateway.networking.k8s.io/v1",
}
WITHOUT_SCHEMA = {
    # No registry has one: the fields without which Envoy Gateway refuses it.
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
        if kind in WITHOUT_SCHEMA:
            assert set(each["spec"]) >= WITHOUT_SCHEMA[kind]
        elif kind not in MODELS:
            assert f"kind {kind} " not in said, "there was no schema for it"


def faults(tools: Path, folder: Path, resources: list[dict[str, Any]]) -> str:
    """What the operators' schemas say: of values when run, of fields that are none by types."""
    home = tools.parent / "operators"
    if not home.exists():
        pytest.skip("needs npm: apt-get install nodejs npm")
    lines = [
        f'import type {{ I{kind} }} from "@kubernetes-models/{module}";'
        for kind, module in MODELS.items()
    ]
    for number, each in enumerate(resources):
        lines.append(f"export const r{number}: I{each['kind']} = {json.dumps(each)};")
    for file, text in (
        ("validate.mjs", (OPERATORS / "validate.mjs").read_text()),
        ("resources.ts", "\n".join(lines)),
    ):
        (folder / file).write_text(text)
    (folder / "node_modules").symlink_to(home / "node_modules")
    (folder / "package.json").symlink_to(home / "package.json")
    types = ["--noEmit", "--strict", "--module", "nodenext", "--skipLibCheck", "resources.ts"]
    said = ""
    for command in (["node", "validate.mjs"], ["node", "node_modules/typescript/bin/tsc", *types]):
        done = subprocess.run(
            command,
            cwd=folder,
            input=json.dumps(resources),
            capture_output=True,
            text=True,
            check=False,
        )
        said += done.stdout + done.stderr
    return said


@pytest.mark.deploy
def test_resources_of_operators_fit_their_schemas(
    tools: Path, rendered: dict[str, Path], tmp_path: Path
) -> None:
    found: dict[str, dict[str, Any]] = {}
    for path in rendered.values():
        found |= {kind: each for kind, each in objects(path).items() if kind in MODELS}
    assert set(found) == set(MODELS)
    assert faults(tools, tmp_path, list(found.values())) == ""
    (tmp_path / "wrong").mkdir()
    good = found["ScaledObject"]
    wrong = [
        {**good, "spec": {**good["spec"], **field}}
        for field in ({"maxReplicaCount": "many"}, {"minReplicas": 2})
    ]
    said = faults(tools, tmp_path / "wrong", wrong)
    assert "maxReplicaCount must be integer" in said
    assert "minReplicas" in said
    assert "does not exist in type 'IScaledObjectSpec'" in said


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


def init_containers(rendered: dict[str, Path], variant: str) -> list[dict[str, Any]]:
    pod = objects(rendered[variant])["Deployment"]["spec"]["template"]["spec"]
    found: list[dict[str, Any]] = pod["initContainers"]
    return found


@pytest.mark.deploy
def test_a_model_that_is_not_what_was_published_keeps_the_pod_from_starting(
    rendered: dict[str, Path], tmp_path: Path
) -> None:
    """The init container's own script, on folders of this machine."""
    [container] = init_containers(rendered, "cuda")
    command = [*container["command"], *container["args"]]

    def starts(change: str) -> bool:
        shutil.rmtree(tmp_path / "source", ignore_errors=True)
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        for name in ("source/asset", "model"):
            (tmp_path / name).mkdir(parents=True)
        prepare = "echo a >asset/a; echo b >b; sha256sum asset/a b >SHA256SUMS;"
        subprocess.run(["sh", "-ec", prepare + change], cwd=tmp_path / "source", check=True)
        script = command[-1].replace("/source", f"{tmp_path}/source")
        script = script.replace("/model", f"{tmp_path}/model")
        done = subprocess.run([*command[:-1], script], capture_output=True, check=False)
        return done.returncode == 0

    assert starts("")
    assert (tmp_path / "model" / "asset" / "a").read_text() == "a\n"
    for change in ("echo c >b", "rm b", "rm SHA256SUMS", "echo c >c", "echo x >>SHA256SUMS"):
        assert not starts(change), change


@pytest.mark.deploy
def test_the_model_comes_from_an_object_store(
    tools: Path, rendered: dict[str, Path], tmp_path: Path
) -> None:
    """rclone with the arguments of the pod; its store here is a web server."""
    fetch, check = init_containers(rendered, "object-store")
    assert (fetch["name"], check["name"]) == ("fetch", "model")
    rendered_all = objects(rendered["object-store"])
    assert "PersistentVolumeClaim" not in rendered_all
    volumes = rendered_all["Deployment"]["spec"]["template"]["spec"]["volumes"]
    [source] = [each for each in volumes if each["name"] == "source"]
    assert set(source) == {"name", "emptyDir"}
    assert {"ports": [{"protocol": "TCP", "port": 443}]} in rendered_all["NetworkPolicy"]["spec"][
        "egress"
    ]
    store = tmp_path / "store" / "bucket" / "chattts" / "asset"
    store.mkdir(parents=True)
    (store / "Decoder.safetensors").write_bytes(os.urandom(100_000))
    (tmp_path / "source").mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "store")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            "RCLONE_CONFIG_MODEL_TYPE": "http",
            "RCLONE_CONFIG_MODEL_URL": f"http://127.0.0.1:{server.server_port}/",
        }
        arguments = [
            each.replace("$(MODEL_PATH)", "bucket/chattts").replace("/source", f"{tmp_path}/source")
            for each in fetch["args"]
        ]
        subprocess.run([str(tools / "rclone"), *arguments], env=variables, check=True, timeout=30)
        server.shutdown()
    copied = tmp_path / "source" / "asset" / "Decoder.safetensors"
    assert copied.read_bytes() == (store / "Decoder.safetensors").read_bytes()


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


def test_every_image_is_pinned_to_its_digest() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    images = [service["image"] for service in compose["services"].values()]
    for path in KUBERNETES.rglob("*.yaml"):
        images += re.findall(r"^ +image: (\S+)", path.read_text(), re.MULTILINE)
    dockerfile = (ROOT / "Dockerfile").read_text()
    images += re.findall(r"^(?:ARG DEBIAN=|# syntax=)(\S+)", dockerfile, re.MULTILINE)
    # Our own have a name that the deployment gives.
    others = [each for each in images if "voxgate" not in each]
    assert len(others) == 6
    for image in others:
        assert re.search(r":[^:@]+@sha256:[0-9a-f]{64}$", image), image


@pytest.mark.deploy
def test_compose_fits_its_specification(tools: Path) -> None:
    files = {"compose-spec": "deploy/compose.yaml", "github-workflows": ".github/workflows/ci.yml"}
    for schema, file in files.items():
        done = subprocess.run(
            [str(tools / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", file],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.deploy
def test_the_scripts_are_clean(tools: Path) -> None:
    scripts = [str(path) for path in ROOT.glob("*/**/*.sh") if ".venv" not in str(path)]
    assert len(scripts) > 4
    done = subprocess.run(
        [str(tools / "shellcheck"), "--severity=warning", *scripts],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


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
