from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth_tokens import Claims, Signer, TokenSecretError, find_secret
from gateway.cli import main
from gateway.keys import KeyFileError, KeyRing, make_key, read_keys, write_keys

SECRET = b"0123456789abcdef0123456789abcdef"


class TestKeys:
    def test_only_a_hash_is_kept_and_only_its_owner_reads_it(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        key, entry = make_key("ann", scopes=("speak", "tokens"), sessions=3)
        write_keys(path, KeyRing([entry]))
        assert key.rsplit("_", 1)[1] not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        ring = read_keys(path)
        assert ring.find(key, 0.0) == entry
        assert list(tmp_path.iterdir()) == [path]

    def test_what_is_not_the_key_is_nobody(self) -> None:
        key, entry = make_key("ann", expires=100)
        ring = KeyRing([entry])
        assert ring.find(key, 99.0) == entry
        assert ring.find(key, 100.0) is None
        other, _ = make_key("bob")
        for wrong in ("", key[:-1], key + "x", other, key.upper(), f"vg_{entry.id}_{'A' * 43}"):
            assert ring.find(wrong, 0.0) is None

    @given(st.text())
    def test_any_text_is_nobody(self, text: str) -> None:
        _, entry = make_key("ann")
        assert KeyRing([entry]).find(text, 0.0) is None

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no file of keys"),
            ("[]", "no file of keys"),
            ('{"keys": [{"id": "a"}]}', "no file of keys"),
            ('{"keys": [{"id": "a", "name": "n", "hash": "h", "scopes": ["all"]}]}', "no scope"),
            ('{"keys": [{"id": "a", "name": "n", "hash": "h", "sessions": true}]}', "wrong type"),
            ('{"keys": [{"id": "a", "name": "n", "hash": "h", "sessions": -1}]}', "negative"),
            ('{"keys": [{"id": "a", "name": "n", "hash": "h", "secret": "s"}]}', "has no 'secret'"),
            (
                '{"keys": [{"id": "a", "name": "n", "hash": "h"}, '
                '{"id": "a", "name": "n", "hash": "h"}]}',
                "same id",
            ),
        ],
    )
    def test_a_file_that_is_wrong_is_refused(self, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "keys.json"
        path.write_text(text)
        with pytest.raises(KeyFileError, match=words):
            read_keys(path)


class TestCommand:
    def test_add_list_revoke(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = ["--file", str(tmp_path / "keys.json")]
        assert main(["keys", "add", "ann", "--scope", "metrics", "--days", "1", *file]) == 0
        key = capsys.readouterr().out.strip()
        assert main(["keys", "add", "bob", "--sessions", "2", *file]) == 0
        capsys.readouterr()
        assert main(["keys", "list", *file]) == 0
        listed = capsys.readouterr().out
        assert "in force  ann  metrics" in listed
        assert "bob  speak  2 sessions" in listed
        assert key not in listed
        assert main(["keys", "revoke", "ann", *file]) == 0
        assert main(["keys", "list", "--json", *file]) == 0
        first, second = json.loads(capsys.readouterr().out)
        assert (first["revoked"], second["revoked"]) == (True, False)
        assert "hash" not in first
        assert read_keys(tmp_path / "keys.json").find(key, 0.0) is None
        assert main(["keys", "revoke", "ann", *file]) == 1
        assert "No key in force called ann" in capsys.readouterr().err


class TestTokens:
    def test_a_token_says_what_was_signed_until_it_expires(self) -> None:
        signer = Signer(SECRET)
        claims = Claims("abc", 100, ("speak",))
        token = signer.sign(claims)
        assert signer.read(token, 99.9) == claims
        assert signer.read(token, 100.0) is None
        assert Signer(SECRET[::-1]).read(token, 0.0) is None

    @given(st.data())
    def test_a_changed_token_is_nothing(self, data: st.DataObject) -> None:
        signer = Signer(SECRET)
        token = signer.sign(Claims("abc", 100, ("speak",)))
        at = data.draw(st.integers(0, len(token) - 1))
        other = data.draw(st.characters().filter(lambda each: each != token[at]))
        assert signer.read(token[:at] + other + token[at + 1 :], 0.0) is None

    @given(st.text())
    def test_any_text_is_nothing(self, text: str) -> None:
        signer = Signer(SECRET)
        assert signer.read(text, 0.0) is None
        assert signer.read("vt_" + text, 0.0) is None

    def test_a_short_secret_signs_nothing(self) -> None:
        with pytest.raises(TokenSecretError, match="needs 32"):
            Signer(b"short")

    def test_the_secret_comes_from_a_file_or_the_environment(self, tmp_path: Path) -> None:
        path = tmp_path / "secret"
        path.write_bytes(SECRET + b"\n")
        assert find_secret(str(path), {}) == SECRET
        assert find_secret("", {"VOXGATE_TOKEN_SECRET": "x"}) == b"x"
        assert find_secret("", {}) is None
