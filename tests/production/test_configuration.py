from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from gateway import safety
from gateway.cli import main
from gateway.configuration import descriptions, load
from gateway.settings import SettingError, Settings

KEYS = "keys.json"


def write(folder: Path, text: str) -> str:
    path = folder / "voxgate.toml"
    path.write_text(text)
    return str(path)


class TestSources:
    def test_flags_win_over_variables_over_the_file_over_defaults(self, tmp_path: Path) -> None:
        file = write(tmp_path, "port = 1\nmax_sessions = 2\nhost = '127.0.0.2'\n")
        found = load(
            {"port": 7, "config": file, "host": None},
            {"VOXGATE_PORT": "5", "VOXGATE_MAX_SESSIONS": "6"},
        )
        settings = found.settings
        assert (settings.port, settings.max_sessions, settings.host) == (7, 6, "127.0.0.2")
        assert settings.retry_after_ms == Settings().retry_after_ms
        names = ("port", "max_sessions", "host", "retry_after_ms")
        expected = ["flag --port", "VOXGATE_MAX_SESSIONS", file, "default"]
        assert [found.sources[name] for name in names] == expected

    def test_tables_group_and_whole_numbers_are_numbers(self, tmp_path: Path) -> None:
        file = write(tmp_path, "[drain]\ndrain_seconds = 9\n[security]\nbehind-proxy = true\n")
        settings = load({}, {"VOXGATE_CONFIG": file}).settings
        assert settings.drain_seconds == 9.0
        assert settings.behind_proxy is True

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("prot = 1", "no setting 'prot'. Do you mean port"),
            ("port = '80'", "port = '80' is not a whole number"),
            ("port = true", "port = True is not a whole number"),
            ("insecure = 1", "insecure = 1 is not true or false"),
            ("port = 1\n[x]\nport = 2", "port is set twice"),
            ("port = ", "Invalid value"),
            ("port = -1", "cannot be negative"),
        ],
    )
    def test_a_bad_file_is_named(self, tmp_path: Path, text: str, words: str) -> None:
        with pytest.raises(SettingError, match=words):
            load({"config": write(tmp_path, text)}, {})

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        for path in (tmp_path / "missing.toml", tmp_path):
            with pytest.raises(SettingError, match=f"{path} cannot be read: .* --config"):
                load({"config": path}, {})

    def test_a_variable_that_is_nearly_a_setting_is_told(self) -> None:
        with pytest.raises(SettingError, match="Do you mean VOXGATE_MAX_SESSIONS"):
            load({}, {"VOXGATE_MAX_SESSION": "1"})
        load({}, {"VOXGATE_TOKEN_SECRET": "x", "VOXGATE_SOMETHING_ELSE": "y"})

    def test_every_setting_is_described(self) -> None:
        found = descriptions()
        assert set(found) == {field.name for field in fields(Settings)}
        for name, meaning in found.items():
            assert name == "port" or meaning.endswith(".")


class TestSafety:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"host": "0.0.0.0"}, "nobody is asked for a key"),
            ({"host": "::"}, "keys and text go in the clear"),
            ({"host": "voice.example"}, "can be reached by others"),
            ({"tls_cert": "a"}, "TLS needs both"),
            ({"tls_client_ca": "a"}, "needs tls_cert too"),
            ({"token_secret_file": "a"}, "there is no keys_file"),
            ({"allowed_origins": "*"}, "any page a user opens"),
            ({"host": "0.0.0.0", "client_header": "x-id"}, "anybody can send it"),
            ({"tls_key": "/nowhere/key.pem"}, "No such file"),
        ],
    )
    def test_what_is_not_safe_is_refused(self, options: dict[str, object], words: str) -> None:
        with pytest.raises(SettingError, match=words):
            safety.check(Settings(**options))  # type: ignore[arg-type]

    def test_what_is_said_plainly_is_allowed(self) -> None:
        safety.check(Settings())
        safety.check(Settings(host="localhost"))
        safety.check(Settings(host="::1"))
        safety.check(Settings(host="0.0.0.0", insecure=True))

    def test_secrets_that_everybody_can_read_are_refused(self, tmp_path: Path) -> None:
        key = tmp_path / "key.pem"
        key.write_text("secret")
        key.chmod(0o644)
        settings = Settings(tls_cert=str(key), tls_key=str(key))
        with pytest.raises(SettingError, match="chmod 600"):
            safety.check(settings)
        key.chmod(0o600)
        safety.check(settings)


class TestCommand:
    def test_it_explains_what_is_in_force(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VOXGATE_DRAIN_SECONDS", "12")
        assert main(["config", "--explain", "--port", "9"]) == 0
        out = capsys.readouterr().out
        assert "port = 9  # flag --port" in out
        assert "# --drain-seconds, VOXGATE_DRAIN_SECONDS\ndrain_seconds = 12.0" in out
        assert "lets its sessions finish" in out

    def test_its_output_is_a_settings_file(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert main(["config", "--max-sessions", "3"]) == 0
        file = write(tmp_path, capsys.readouterr().out)
        assert load({"config": file}, {}).settings == Settings(max_sessions=3)

    def test_json_and_check(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["config", "--json", "--insecure", "--host", "0.0.0.0"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["insecure"] == {"value": True, "from": "flag --insecure"}
        assert main(["config", "--check", "--host", "0.0.0.0"]) == 1
        assert "nobody is asked for a key" in capsys.readouterr().err.replace("\n", " ")
        assert main(["config", "--check"]) == 0
