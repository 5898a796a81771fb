from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import coverage
import numpy as np
import opuslib
import pytest
from fake_engine import FakeSynthesizer, Script
from rich.console import Console

from engine.api import SpeechRequest
from gateway import playback, transport
from gateway.app import create_app
from gateway.cli import main
from gateway.codecs import CodecMissingError
from gateway.commands import outputs, voices
from gateway.commands.console import command, starting
from gateway.containers import read_raw_opus
from gateway.playback import Player
from gateway.server import listen, make_server
from gateway.settings import Settings

ROOT = Path(__file__).parents[2]


def script(request: SpeechRequest, number: int) -> Script:
    if "is lost" in request.text:
        asyncio.get_running_loop().call_later(0.1, cut_off)
        return Script(samples=48_000, chunk=2_400, delay=0.02)
    return Script(fail_after=1) if "stumble" in request.text else Script(samples=24_000)


def cut_off() -> None:
    """Every connection is lost."""
    for connection in list(transport._open):
        connection.transport.abort()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway with a scripted engine, in a thread of this process."""
    settings = Settings(port=0, piece_retry_seconds=0.0)
    app = create_app(settings, lambda: FakeSynthesizer(script))
    ready = threading.Event()
    app.state.gateway.on_started = lambda _failure: ready.set()
    server = make_server(app, settings)
    with listen(settings) as listener:
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),))
        thread.start()
        assert ready.wait(10)
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def run(
    *arguments: str, script: str | None = None, cwd: Path = ROOT, **environment: str
) -> subprocess.Popen[str]:
    """`voxgate`, or a script, with a process group of its own as at a terminal; counted."""
    command = [sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    measuring = coverage.Coverage.current()
    if measuring is not None:
        command += ["-m", "coverage", "run", "-p", f"--rcfile={ROOT / 'pyproject.toml'}"]
        environment["COVERAGE_FILE"] = str(measuring.get_option("run:data_file"))
    command += [script] if script else ["-m", "gateway.cli"]
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="latin-1",
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )


# -- say ------------------------------------------------------------------------------------------


def test_say_writes_wav(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.wav"
    assert main(["say", "Good morning.", "-o", str(out), "--url", url]) == 0
    with wave.open(str(out)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
    assert pcm.size == pytest.approx(24_000, abs=2_400)
    assert np.abs(pcm).max() == pytest.approx(0.3 * 32767, rel=0.02)
    told = capsys.readouterr()
    assert told.out == ""
    assert "first packet" in told.err
    assert "first audible" in told.err


def test_say_outlives_its_connection(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.wav"
    assert main(["say", "The connection is lost.", "-o", str(out), "--url", url]) == 0
    with wave.open(str(out)) as wav:
        assert wav.getnframes() >= 48_000
    assert "2.1 s of speech" in capsys.readouterr().err


def test_say_writes_ogg(url: str, tmp_path: Path) -> None:
    import soundfile

    out = tmp_path / "out.ogg"
    assert main(["say", "Good morning.", "-o", str(out), "--url", url]) == 0
    pcm, rate = soundfile.read(out)
    assert pcm.size / rate == pytest.approx(1.0, abs=0.1)
    assert np.abs(pcm).max() == pytest.approx(0.3, abs=0.06)


def test_say_writes_bare_opus(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.opus"
    assert main(["say", "Good morning.", "-o", str(out), "--url", url]) == 0
    decoder = opuslib.Decoder(24_000, 1)
    with out.open("rb") as file:
        pcm = b"".join(decoder.decode(packet, 480) for packet in read_raw_opus(file))
    assert len(pcm) / 48_000 == pytest.approx(1.0, abs=0.1)


def test_say_writes_to_standard_output(
    url: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["say", "Good morning.", "-o", "-", "--format", "wav", "--url", url]) == 0
    written = capsysbinary.readouterr().out
    assert written[:4] == b"RIFF"
    assert len(written) > 40_000


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.BufferedWriter]:
    """What is written here arrives on standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb") as file:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield file


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_say_reads_standard_input(
    url: str, tmp_path: Path, typed: io.BufferedWriter, arguments: list[str]
) -> None:
    typed.write("你好。Hello. Good bye.".encode())
    typed.close()
    out = tmp_path / "out.wav"
    assert main(["say", *arguments, "-o", str(out), "--url", url]) == 0
    with wave.open(str(out)) as file:
        assert file.getnframes() > 24_000


def test_text_is_spoken_before_standard_input_ends(
    url: str, tmp_path: Path, typed: io.BufferedWriter
) -> None:
    out = tmp_path / "out.opus"
    finished: list[int] = []
    command = ["say", "-", "-o", str(out), "--url", url]
    speaking = threading.Thread(target=lambda: finished.append(main(command)))
    speaking.start()
    # A sentence whose last character is still in two parts when the first part is read.
    sentence = "早上好。".encode()
    typed.write(sentence[:-1])
    typed.flush()
    typed.write(sentence[-1:] + b" ")
    typed.flush()
    while not (out.exists() and out.stat().st_size > 1_000):
        speaking.join(0.01)
        assert speaking.is_alive()
    typed.close()
    speaking.join()
    assert finished == [0]


def test_input_that_is_not_utf8(
    url: str, tmp_path: Path, typed: io.BufferedWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    typed.write(b"Hello. \xff\xfe")
    typed.close()
    assert main(["say", "-o", str(tmp_path / "out.ogg"), "--url", url]) == 1
    assert "not UTF-8" in capsys.readouterr().err


def test_nothing_to_say(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["say", "  ", "-o", str(tmp_path / "out.ogg"), "--url", url]) == 0
    assert "Nothing was spoken" in capsys.readouterr().err


def test_a_piece_that_fails_is_told(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.wav"
    assert main(["say", "This will stumble.", "-o", str(out), "--url", url]) == 1
    assert "runaway" in capsys.readouterr().err


def test_unknown_voice(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.ogg"
    assert main(["say", "Hi.", "--voice", "nobody", "-o", str(out), "--url", url]) == 1
    assert "voices" in capsys.readouterr().err
    assert not out.exists()


def test_bad_speed_is_told_by_its_code(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.ogg"
    assert main(["say", "Hi.", "--speed", "9", "-o", str(out), "--url", url]) == 1
    assert "bad_speed" in capsys.readouterr().err


def test_no_gateway(
    unused_tcp_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.ogg"
    nowhere = f"ws://127.0.0.1:{unused_tcp_port}"
    assert main(["say", "Hi.", "-o", str(out), "--url", nowhere]) == 1
    told = capsys.readouterr().err
    assert "make demo" in told
    assert "route=" not in told
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.midi"], ".ogg, .oga, .webm, .wav, .opus, .mp3"),
        (["-o", "/nowhere/out.ogg"], "cannot be written: No such file"),
    ],
)
def test_an_output_that_cannot_be(
    url: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["say", "Hi.", *arguments, "--url", url]) in (1, 2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["mp3", "flac", "aac"])
def test_say_encodes_what_the_wire_does_not_have(url: str, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"out.{kind}"
    assert main(["say", "Good morning.", "-o", str(out), "--url", url]) == 0
    with av.open(str(out)) as file:
        frames = list(file.decode(audio=0))
    assert frames[0].sample_rate == 24_000
    assert 0.9 < sum(frame.samples for frame in frames) / 24_000 < 1.3


def test_an_encoder_that_is_missing_is_told_before_anything_is_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise CodecMissingError(f"There is no {name}")

    monkeypatch.setattr("gateway.codecs.mp3.library", missing)
    assert main(["say", "Hi.", "-o", str(tmp_path / "out.mp3")]) == 1
    assert "There is no mp3lame, or write .ogg or .wav." in capsys.readouterr().err


# -- terminals and players ------------------------------------------------------------------------


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_no_text_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    assert main(["say"]) == 2
    assert "Say what?" in capsys.readouterr().err


def test_no_audio_into_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO()))
    assert main(["say", "Hi.", "-o", "-"]) == 2
    assert "is a terminal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("printf '\\377\\376' | {say} - -o {out} --url {url}", "not UTF-8"),
        ("{say} $'bad \\xff' -o {out} --url {url}", "not UTF-8"),
        ("{say} - -o {out} --url {url} <&-", "no standard input"),
        ("{say} Hi. -o - --url {url} >&-", "use -o FILE"),
        ("{say} Hi. -o {out} --url ftp://x", "bad_url"),
        ("{say} Hi. -o {out} --url http://127.0.0.1:99999", "bad_url"),
    ],
)
def test_what_cannot_be_is_told_and_nothing_hangs(
    url: str, tmp_path: Path, command: str, told: str
) -> None:
    say = f"{sys.executable} -m gateway.cli say"
    line = command.format(say=say, out=tmp_path / "out.ogg", url=url)
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("feed", "size"), [("wav", 44), ("raw", 0)])
def test_say_plays(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: str, size: int
) -> None:
    heard = tmp_path / "heard"
    player = Player("cat", ("sh", "-c", f"cat > {heard}"), feed)  # type: ignore[arg-type]
    monkeypatch.setattr(outputs, "find_player", lambda: player)
    assert main(["say", "Good morning.", "--url", url]) == 0
    assert heard.stat().st_size - size == pytest.approx(48_000, abs=4_800)


def test_a_player_that_fails(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    player = Player("mute", ("sh", "-c", "exec <&-; echo no sound card >&2; exit 3"), "wav")
    monkeypatch.setattr(outputs, "find_player", lambda: player)
    text = "A long sentence follows another one. " * 20
    assert main(["say", text, "--url", url]) == 1
    told = capsys.readouterr().err
    assert "mute could not play: no sound card" in told
    assert "-o out.ogg" in told


def test_no_player(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert playback.find_player() is None
    assert main(["say", "Hi."]) == 1
    assert "alsa-utils" in capsys.readouterr().err


def test_the_first_player_found_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ffplay", "aplay"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = playback.find_player()
    assert found is not None
    assert found.name == "aplay"


def test_a_player_does_not_play_on_after_an_interrupt() -> None:
    player = Player("sleep", ("sleep", "600"), "raw")
    with pytest.raises(KeyboardInterrupt), outputs.speakers(player):
        raise KeyboardInterrupt


# -- progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown(terminal: bool) -> None:
    shown = io.StringIO()
    with starting(Console(file=shown, force_terminal=terminal, width=100)) as report:
        report("warming the voices", 0.8)
    assert "warming the voices" in shown.getvalue()


@pytest.mark.parametrize(
    ("folder", "shown"), [(Path(sys.executable).parent.parent, "bin/voxgate"), (ROOT.parent, None)]
)
def test_the_command_is_named_as_it_can_be_typed(
    folder: Path, shown: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shown is None or command() == shown
    assert (folder / command()).exists()
    (tmp_path / "voxgate").touch(mode=0o755)
    assert command() == "voxgate"


# -- voices, doctor, bench ------------------------------------------------------------------------


def test_voices_of_a_gateway(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices", "--json", "--url", url]) == 0
    assert {"ann", "bao"} <= {voice["id"] for voice in json.loads(capsys.readouterr().out)}


def test_voices_as_a_table(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices", "--url", url]) == 0
    assert "ann" in capsys.readouterr().out


def test_voices_of_a_gateway_that_is_not_there(
    unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["voices", "--url", f"ws://127.0.0.1:{unused_tcp_port}"]) == 1
    assert str(unused_tcp_port) in capsys.readouterr().err


def test_doctor_prints_a_table(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--port", str(unused_tcp_port)])
    told = capsys.readouterr().out
    assert f"Port {unused_tcp_port}" in told
    assert ("This machine can run Voxgate." in told) == (code == 0)


def test_doctor_fails_for_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["doctor", "--json", "--port", str(port)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["fit"] is False
    [taken] = [each for each in report["findings"] if each["name"] == f"Port {port}"]
    assert f"--port {port + 1}" in taken["fix"]


def test_bench_measures_a_gateway(url: str, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    options = ["--streams", "1", "--seconds", "1", "--think", "0.1", "--quiet", "--url", url]
    assert main(["bench", *options, "--json", str(result)]) == 0
    assert json.loads(result.read_text())["streams"] == 1


def test_bench_takes_the_options_of_the_load_generator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--streams", "0"])
    assert ended.value.code == 2
    assert "--streams" in capsys.readouterr().err


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "/nowhere"], "no such directory"),
        (["--checkpoint", "."], "neither a ChatTTS release"),
    ],
)
def test_serve_names_a_checkpoint_that_is_none(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    process = run("serve", "--port", "0", *arguments, cwd=tmp_path)
    told = process.communicate()[1]
    assert process.returncode == 1
    assert message in told
    assert "Traceback" not in told


def test_a_port_in_use_is_told_before_the_engine_loads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = run_fake("ready", "serve", "--port", str(port))
        out, told = process.communicate()
    assert process.returncode == 1
    assert out == ""
    assert told.startswith(f"Port {port} on 127.0.0.1 is in use")
    assert "--port" in told


def test_an_environment_variable_that_is_wrong() -> None:
    process = run("serve", VOXGATE_PORT="eighty")
    told = process.communicate()[1]
    assert process.returncode == 1
    assert "VOXGATE_PORT" in told
    assert "Traceback" not in told


def test_a_fault_of_ours_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voices, "embedded_voices", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["voices"])


def test_a_reader_that_has_had_enough(url: str) -> None:
    text = "A sentence that follows another one. " * 20
    process = run("say", text, "-o", "-", "--format", "wav", "--url", url)
    assert process.stdout is not None
    assert process.stdout.read(4) == "RIFF"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "start the gateway and its speech engine" in said
    assert "examples:" in said


# -- signals --------------------------------------------------------------------------------------


def run_fake(mode: str, *arguments: str) -> subprocess.Popen[str]:
    script = Path(__file__).parent / "serve_fake_engine.py"
    return run(mode, *arguments, script=str(script))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_serve_stops_before_its_engine_does(sent: signal.Signals) -> None:
    process = run_fake("ready", "serve", "--port", "0")
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "Ctrl-C stops it" in line:
            break
    assert any("Voxgate is ready: http://127.0.0.1:" in line for line in lines)
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    out, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.splitlines() == ["loading", "its process runs"]
    assert rest.splitlines() == ["Stopped."]


def test_an_interrupt_does_not_wait_for_an_engine_that_loads() -> None:
    process = run_fake("loading", "serve", "--port", "0")
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    os.killpg(process.pid, signal.SIGINT)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == "its process ended\n"
    assert told.splitlines()[-1] == "Stopped."
    assert "Traceback" not in told


def test_say_with_an_engine_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    process = run_fake("ready", "say", "Good morning.", "--local", "-o", str(out))
    told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert told[0].splitlines() == ["loading", "its process runs"]
    assert "first packet" in told[1]
    with wave.open(str(out)) as file:
        assert file.getnframes() > 0


def test_an_interrupt_ends_say_with_an_engine_of_its_own(tmp_path: Path) -> None:
    process = run_fake(
        "loading", "say", "Good morning.", "--local", "-o", str(tmp_path / "out.wav")
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    os.killpg(process.pid, signal.SIGINT)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert out == "its process ended\n"
    assert "Traceback" not in told
