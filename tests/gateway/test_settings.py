from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.settings import SettingError, Settings


def test_every_setting_is_a_variable_and_overrides_win() -> None:
    values = {f"VOXGATE_{field.name.upper()}": "7" for field in fields(Settings)}
    values |= {
        f"VOXGATE_{field.name.upper()}": "yes" for field in fields(Settings) if field.type == "bool"
    }
    settings = Settings.from_env({**values, "VOXGATE_OTHER": "x", "PATH": "y"}, port=9)
    assert settings.port == 9
    assert settings.host == "7"
    assert settings.max_sessions == 7
    assert settings.drain_seconds == 7.0


def test_without_variables_the_defaults_hold() -> None:
    assert Settings.from_env({}) == Settings()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"VOXGATE_PORT": "http"}, "VOXGATE_PORT='http' is not a whole number"),
        ({"VOXGATE_PORT": "80.5"}, "is not a whole number"),
        ({"VOXGATE_DRAIN_SECONDS": "soon"}, "is not a number"),
        ({"VOXGATE_DRAIN_SECONDS": "-1"}, "drain_seconds is -1.0; it cannot be negative"),
        ({"VOXGATE_DRAIN_SECONDS": "nan"}, "is nan, which is not a number"),
        ({"VOXGATE_PORT": "99999"}, "ports go up to 65535"),
        ({"VOXGATE_INSECURE": "maybe"}, "is not true or false"),
        ({"VOXGATE_OPUS_COMPLEXITY": "11"}, "Opus has 0 to 10"),
        ({"VOXGATE_PIECES_AHEAD": "0"}, "at least one piece"),
    ],
)
def test_a_bad_value_is_named(environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Settings.from_env(environment)
