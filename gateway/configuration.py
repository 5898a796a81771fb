"""Where settings come from: flags, environment, file, defaults, in this order."""

from __future__ import annotations

import ast
import difflib
import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from gateway.settings import KINDS, PREFIX, SettingError, Settings

FILE_VARIABLE = PREFIX + "CONFIG"
SECRET_VARIABLES = (PREFIX + "TOKEN_SECRET",)
"""Secrets are no settings: settings are printed and recorded."""
_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings, and for every one of them where its value comes from."""

    settings: Settings
    sources: Mapping[str, str]


def load(flags: Mapping[str, object], environment: Mapping[str, str]) -> Configuration:
    """Settings from `flags` (those that are None were not given), variables and the settings file.

    The file is the flag `config` or the variable `VOXGATE_CONFIG`. Raises `SettingError`.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    place = given.pop("config", None) or environment.get(FILE_VARIABLE)
    from_file = read_file(Path(str(place))) if place else {}
    _check_variables(environment)
    sources = {}
    for field in fields(Settings):
        if field.name in given:
            sources[field.name] = "flag --" + field.name.replace("_", "-")
        elif PREFIX + field.name.upper() in environment:
            sources[field.name] = PREFIX + field.name.upper()
        elif field.name in from_file:
            sources[field.name] = str(place)
        else:
            sources[field.name] = "default"
    settings = Settings.from_env(environment, **{**_unset(from_file, environment), **given})
    return Configuration(settings, sources)


def read_file(path: Path) -> dict[str, object]:
    """A TOML file of settings; tables only group them. Raises `SettingError`."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise SettingError(
            f"The settings file {path} cannot be read: {failure.strerror}. Name another with "
            f"--config or {FILE_VARIABLE}."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise SettingError(f"{path}: {failure}") from None
    kinds = {field.name: str(field.type) for field in fields(Settings)}
    values: dict[str, object] = {}
    for name, value in _flat(document):
        kind = kinds.get(name)
        if kind is None:
            raise SettingError(f"{path}: there is no setting {name!r}.{_meant(name, kinds)}")
        if name in values:
            raise SettingError(f"{path}: {name} is set twice.")
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise SettingError(f"{path}: {name} = {value!r} is not {KINDS[kind].words}.")
        values[name] = float(value) if kind == "float" and isinstance(value, int) else value
    return values


def descriptions() -> dict[str, str]:
    """What is said of every setting in `Settings`, in one line each."""
    body = ast.parse(inspect.getsource(Settings)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    names = {field.name for field in fields(Settings)}
    name = None
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name in names:
            found[name] = " ".join(str(node.value.value).split())
            name = None
        else:
            name = None
    return found


def _unset(values: dict[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    return {
        name: value for name, value in values.items() if PREFIX + name.upper() not in environment
    }


def _flat(table: Mapping[str, object]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in table.items():
        found += _flat(value) if isinstance(value, dict) else [(name.replace("-", "_"), value)]
    return found


def _check_variables(environment: Mapping[str, str]) -> None:
    """A variable that is nearly a setting is a mistake that would otherwise go unnoticed."""
    known = {PREFIX + field.name.upper() for field in fields(Settings)}
    for name in environment:
        if name.startswith(PREFIX) and name not in (*known, FILE_VARIABLE, *SECRET_VARIABLES):
            close = difflib.get_close_matches(name, known, 1, 0.85)
            if close:
                raise SettingError(f"{name} is no setting. Do you mean {close[0]}?")


def _meant(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f" Do you mean {close[0]}?" if close else ""
