"""ElevenLabs' own library, pointed at the gateway by its base URL."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from clients_support import decoded
from elevenlabs import OutputFormat, VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core import ApiError
from elevenlabs.errors import UnprocessableEntityError
from elevenlabs.text_to_speech.types import TextToSpeechConvertRequestOutputFormat
from fake_engine import FakeSynthesizer, Script
from gateway_conftest import Run, Running
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from engine.api import SpeechError, SpeechRequest
from gateway.http.sound import ELEVENLABS

TEXT = "Hello there. How are you today?"
CERTIFICATES = Path(__file__).parents[1] / "production" / "certificates"


def client(running: Running) -> AsyncElevenLabs:
    return AsyncElevenLabs(base_url=running.url, api_key="none")


async def spoken(running: Running, voice: str = "ann", **wishes: Any) -> bytes:
    wishes = {"text": TEXT, **wishes}
    parts = client(running).text_to_speech.convert(voice, **wishes)
    return b"".join([part async for part in parts])


class TestHttp:
    @pytest.mark.parametrize("name", list(ELEVENLABS))
    async def test_every_output_format(self, run: Run, name: str) -> None:
        kind, rate = re.sub("_.*", "", name), int(name.split("_")[1])
        async with run() as running:
            data = await spoken(running, output_format=name)
        if kind in ("pcm", "ulaw", "alaw"):
            seconds = len(data) / rate / (2 if kind == "pcm" else 1)
        else:
            samples, heard = decoded(data, {"opus": "ogg"}.get(kind, kind))
            assert heard == rate
            seconds = samples.size / rate
        assert 0.7 < seconds < 1.1

    def test_every_name_their_library_knows_is_made(self) -> None:
        union = get_args(TextToSpeechConvertRequestOutputFormat)
        assert set(get_args(union[0])) == set(ELEVENLABS)
        assert set(get_args(get_args(OutputFormat)[0])) <= set(ELEVENLABS)

    async def test_the_default_is_mp3_at_44100(self, run: Run) -> None:
        async with run() as running:
            assert decoded(await spoken(running), "mp3")[1] == 44_100

    async def test_stream_begins_with_the_first_packet(self, run: Run) -> None:
        more = asyncio.Event()
        engine = FakeSynthesizer(lambda _, number: Script(hold=more if number else None))
        async with run(engine) as running:
            parts = client(running).text_to_speech.stream(
                "ann", text=TEXT, output_format="pcm_24000", model_id="eleven_flash_v2_5"
            )
            assert await anext(parts)
            more.set()
            assert [part async for part in parts]

    async def test_leaving_the_stream_frees_the_engine(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=2_400_000, delay=0.05))
        async with run(engine) as running:
            parts = client(running).text_to_speech.stream("ann", text=TEXT)
            await anext(parts)
            await parts.aclose()
            while engine.running:
                await asyncio.sleep(0.001)
            await running.quiet()

    async def test_characters_have_times(self, run: Run) -> None:
        async with run() as running:
            api = client(running).text_to_speech
            whole = await api.convert_with_timestamps("ann", text=TEXT, output_format="pcm_24000")
            lines = [
                line
                async for line in api.stream_with_timestamps(
                    "ann", text=TEXT, output_format="pcm_24000"
                )
            ]
        assert whole.alignment is not None
        assert "".join(whole.alignment.characters) == TEXT
        ends = whole.alignment.character_end_times_seconds
        starts = whole.alignment.character_start_times_seconds
        assert starts[0] == 0.0
        assert starts[1:] == ends[:-1]
        audio = base64.b64decode(whole.audio_base_64)
        assert ends[-1] == pytest.approx(len(audio) / 48_000, abs=0.001)
        assert base64.b64decode(lines[0].audio_base_64)
        streamed = [line.alignment for line in lines if line.alignment is not None]
        assert len(streamed) == 2
        assert "".join("".join(each.characters) for each in streamed) == TEXT
        assert len(b"".join(base64.b64decode(line.audio_base_64) for line in lines)) == len(audio)

    async def test_settings_reach_the_engine_or_are_told(self, run: Run) -> None:
        async with run() as running:
            async with client(running).text_to_speech.with_raw_response.convert(
                "bao",
                text="Hi.",
                seed=5,
                language_code="en",
                voice_settings=VoiceSettings(speed=1.2, stability=0.5, similarity_boost=0.7),
            ) as answer:
                assert [part async for part in answer.data]
            [asked] = running.engine.requests
        assert (asked.voice, asked.speed, asked.seed, asked.language) == ("bao", 1.2, 5, "en")
        assert answer.headers["x-voxgate-ignored"] == "stability, similarity_boost"

    @pytest.mark.parametrize(
        ("wishes", "status", "code"),
        [
            ({"voice": "JBFqnCBsd6RMkjVDRZzb"}, 404, "voice_not_found"),
            ({"model_id": "eleven_v9"}, 400, "model_not_found"),
            ({"text": ""}, 400, "empty_text"),
            ({"text": "a" * 20_001}, 400, "max_character_limit_exceeded"),
            ({"language_code": "fr"}, 400, "unsupported_language"),
            ({"voice_settings": VoiceSettings(speed=4.0)}, 400, "invalid_voice_settings"),
            ({"voice_settings": VoiceSettings(style=0.5)}, 400, "unsupported_parameter"),
            ({"apply_text_normalization": "off"}, 400, "unsupported_parameter"),
            ({"audio_effects": {"pan": 0.5}}, 400, "unsupported_parameter"),
            (
                {"pronunciation_dictionary_locators": [{"pronunciation_dictionary_id": "a"}]},
                400,
                "unsupported_parameter",
            ),
        ],
    )
    async def test_refusals(self, run: Run, wishes: dict[str, Any], status: int, code: str) -> None:
        async with run() as running:
            with pytest.raises(ApiError) as refused:
                await spoken(running, **wishes)
            assert not running.engine.requests
        assert refused.value.status_code == status
        detail = refused.value.body["detail"]
        assert detail["code"] == detail["status"] == code
        assert detail["message"]
        assert detail["request_id"]

    async def test_a_malformed_request_lists_its_fields(self, run: Run) -> None:
        async with run() as running:
            with pytest.raises(UnprocessableEntityError) as refused:
                await spoken(running, output_format="mp3_8000_8")
            [error] = refused.value.body["detail"]
            assert error["loc"] == ["query", "output_format"]
            async with httpx.AsyncClient() as http:
                url = f"{running.url}/v1/text-to-speech/ann"
                answer = await http.post(url, json={"words": "Hi."})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == ["body", "text"]

    @pytest.mark.parametrize(
        ("body", "query", "place"),
        [
            ({"text": 5}, {}, ["body", "text"]),
            ({"text": "Hi.", "seed": -1}, {}, ["body", "seed"]),
            ({"text": "Hi.", "seed": 2**32}, {}, ["body", "seed"]),
            ({"text": "Hi.", "model_id": []}, {}, ["body", "model_id"]),
            ({"text": "Hi.", "voice_settings": 5}, {}, ["body", "voice_settings"]),
            (
                {"text": "Hi.", "voice_settings": {"stability": 1.1}},
                {},
                ["body", "voice_settings", "stability"],
            ),
            (
                {"text": "Hi.", "voice_settings": {"speed": "fast"}},
                {},
                ["body", "voice_settings", "speed"],
            ),
            (
                {"text": "Hi.", "apply_text_normalization": "maybe"},
                {},
                ["body", "apply_text_normalization"],
            ),
            ({"text": "Hi.", "previous_request_ids": "a"}, {}, ["body", "previous_request_ids"]),
            ({"text": "Hi."}, {"enable_logging": "perhaps"}, ["query", "enable_logging"]),
            (
                {"text": "Hi."},
                {"optimize_streaming_latency": "5"},
                ["query", "optimize_streaming_latency"],
            ),
            ([], {}, ["body"]),
        ],
    )
    async def test_every_malformed_field_is_named(
        self, run: Run, body: Any, query: dict[str, str], place: list[str]
    ) -> None:
        async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
            answer = await http.post("/v1/text-to-speech/ann", json=body, params=query)
            assert not running.engine.requests
        assert answer.status_code == 422
        [error] = answer.json()["detail"]
        assert error["loc"] == place
        assert error["msg"]

    async def test_bodies_that_are_no_json_are_refused(self, run: Run) -> None:
        async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
            url = "/v1/text-to-speech/ann"
            for answer in (
                await http.post(url, data={"text": "Hi."}),
                await http.post(url, files={"text": b"Hi."}),
                await http.post(url),
            ):
                assert answer.status_code == 422
                assert answer.json()["detail"][0]["loc"] == ["body"]
            # What a body is called does not matter.
            for kind in ({}, {"content-type": "text/plain"}):
                answer = await http.post(url, content=b'{"text": "Hi."}', headers=kind)
                assert answer.status_code == 200

    async def test_what_is_left_out_is_told(self, run: Run) -> None:
        async with run() as running:
            async with client(running).text_to_speech.with_raw_response.stream(
                "ann",
                text=TEXT,
                enable_logging=False,
                optimize_streaming_latency=3,
                previous_text="Before.",
                next_text="After.",
                previous_request_ids=["a"],
                apply_text_normalization="on",
                apply_language_text_normalization=False,
                use_pvc_as_ivc=True,
                voice_settings=VoiceSettings(use_speaker_boost=False, stability=0.4),
                request_options={"additional_body_parameters": {"mood": 1, "a\r\nb": 2}},
            ) as answer:
                assert [part async for part in answer.data]
        assert answer.headers["x-voxgate-ignored"].split(", ") == [
            "optimize_streaming_latency",
            "stability",
            "previous_text",
            "next_text",
            "previous_request_ids",
            "use_pvc_as_ivc",
            "mood",
        ]

    async def test_a_server_that_records_says_so(self, run: Run, tmp_path: Path) -> None:
        async with run(record_dir=str(tmp_path)) as running:
            with pytest.raises(ApiError) as refused:
                await spoken(running, enable_logging=False)
            assert await spoken(running, enable_logging=True)
            async with socket(running, enable_logging="false") as connection:
                assert (await rest(connection))[-1]["error"] == "unsupported_parameter"
        assert refused.value.status_code == 400
        assert refused.value.body["detail"]["param"] == "enable_logging"

    async def test_a_full_server_is_busy(self, run: Run) -> None:
        async with run(max_sessions=1) as running:
            async with running.client():
                with pytest.raises(ApiError) as refused:
                    options: Any = {"max_retries": 0}
                    await spoken(running, request_options=options)
        assert refused.value.status_code == 429
        assert refused.value.body["detail"]["status"] == "system_busy"

    async def test_a_default_voice_of_the_engine_is_listed_once(self, run: Run) -> None:
        engine = FakeSynthesizer()
        engine.listed = (replace(engine.listed[0], id="default", name="Automatic"), *engine.listed)
        async with run(engine) as running:
            voices = (await client(running).voices.get_all()).voices
        assert [(v.voice_id, v.name) for v in voices][:1] == [("default", "Automatic")]
        assert [v.voice_id for v in voices] == ["default", "ann", "bao"]

    async def test_voices_and_models(self, run: Run) -> None:
        async with run() as running:
            api = client(running)
            voices = (await api.voices.get_all()).voices
            assert [voice.voice_id for voice in voices] == ["default", "ann", "bao"]
            assert (await api.voices.get("bao")).name == "Bao"
            with pytest.raises(ApiError) as refused:
                await api.voices.get("nobody")
            assert refused.value.status_code == 404
            first = await api.voices.search(page_size=2)
            assert (first.has_more, first.total_count) == (True, 3)
            rest = await api.voices.search(page_size=2, next_page_token=first.next_page_token)
            assert [voice.voice_id for voice in rest.voices] == ["bao"]
            assert [v.voice_id for v in (await api.voices.search(search="ANN")).voices] == ["ann"]
            named = await api.voices.search(sort="name", sort_direction="desc")
            assert [voice.voice_id for voice in named.voices] == ["default", "bao", "ann"]
            assert len((await api.voices.search(category="premade")).voices) == 3
            for filters in ({"category": "cloned"}, {"voice_type": "personal"}):
                wanted: Any = filters
                assert not (await api.voices.search(**wanted)).voices
            with pytest.raises(UnprocessableEntityError):
                await api.voices.search(sort="beauty")
            models = await api.models.list()
            assert {"voxgate", "eleven_flash_v2_5"} <= {model.model_id for model in models}
            assert all(model.can_do_text_to_speech for model in models)
            for model in models:
                assert await spoken(running, model_id=model.model_id, output_format="pcm_8000")


async def test_models_go_by_whose_client_asks(run: Run) -> None:
    async with run() as running, httpx.AsyncClient(base_url=running.url) as http:
        ours = (await http.get("/v1/models", headers={"xi-api-key": "none"})).json()
        theirs = (await http.get("/v1/models")).json()
    assert {model["model_id"] for model in ours} >= {"eleven_flash_v2_5"}
    assert theirs["object"] == "list"


# -- sockets --------------------------------------------------------------------------------------


@asynccontextmanager
async def socket(
    running: Running, path: str = "stream-input", voice: str = "ann", **query: Any
) -> AsyncIterator[ClientConnection]:
    query = {"output_format": "pcm_24000", **query}
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    url = f"{running.url.replace('http', 'ws', 1)}/v1/text-to-speech/{voice}/{path}?{asked}"
    async with connect(url, compression=None) as connection:
        yield connection


async def send(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def rest(connection: ClientConnection) -> list[dict[str, Any]]:
    """All messages until the end."""
    messages = []
    try:
        while True:
            messages.append(json.loads(await connection.recv()))
    except ConnectionClosed:
        return messages


def audio_of(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(each["audio"]) for each in messages if each.get("audio"))


def text_of(messages: list[dict[str, Any]]) -> str:
    return "".join(
        "".join(each["alignment"]["chars"]) for each in messages if each.get("alignment")
    )


class TestStreamInput:
    async def test_text_in_audio_and_times_out(self, run: Run) -> None:
        async with run() as running, socket(running) as connection:
            await send(connection, text=" ", voice_settings={"stability": 0.5})
            for word in TEXT.split():
                await send(connection, text=word + " ")
            await send(connection, text="")
            *messages, final = await rest(connection)
            assert connection.close_code == 1000
        assert final["isFinal"] is True
        assert final["audio"] is None
        assert len(audio_of(messages)) > 30_000
        assert text_of(messages) == TEXT + " "
        for message in messages:
            times = message["alignment"]
            if times is None:
                continue
            assert times["charStartTimesMs"][0] == 0
            assert len(times["chars"]) == len(times["charDurationsMs"])
            assert min(times["charDurationsMs"]) >= 0

    async def test_flush_speaks_and_keeps_the_connection(self, run: Run) -> None:
        async with run() as running, socket(running) as connection:
            await send(connection, text=" ", generation_config={"chunk_length_schedule": [500]})
            await send(connection, text="Not enough for the schedule ")
            await send(connection, text="to be spoken. ", flush=True)
            assert json.loads(await connection.recv())["audio"]
            assert [r.text for r in running.engine.requests] == [
                "Not enough for the schedule to be spoken."
            ]
            await send(connection, text="More. ")
            await send(connection, text="")
            messages = await rest(connection)
        assert messages[-1]["isFinal"]
        assert [r.text for r in running.engine.requests][-1] == "More."

    async def test_the_schedule_holds_text_back(self, run: Run) -> None:
        async with run() as running, socket(running) as connection:
            await send(connection, text=" ", generation_config={"chunk_length_schedule": [60]})
            await send(connection, text="This is a sentence. And another. ")
            await send(connection, text=" ")
            await asyncio.sleep(0.7)
            # Without a schedule the writer's silence would have brought it out.
            assert not running.engine.requests
            await send(connection, text="Now it is enough for the first generation. ")
            assert json.loads(await connection.recv())["audio"]
            await send(connection, text="")
            await rest(connection)

    async def test_auto_mode_speaks_each_sentence(self, run: Run) -> None:
        async with run() as running, socket(running, auto_mode="true") as connection:
            await send(connection, text=" ")
            await send(connection, text="One sentence. ")
            while not running.engine.requests:
                await asyncio.sleep(0.001)
            assert running.engine.requests[0].text == "One sentence."
            await send(connection, text="")
            await rest(connection)

    async def test_silence_ends_it_and_a_space_keeps_it(self, run: Run) -> None:
        async with run() as running, socket(running, inactivity_timeout=1) as connection:
            await send(connection, text="Hello you. ")
            for _ in range(3):
                await asyncio.sleep(0.5)
                await send(connection, text=" ")
            messages = await rest(connection)
            assert connection.close_code == 1008
        assert messages[-1]["error"] == "input_timeout_exceeded"
        assert audio_of(messages)

    async def test_a_connection_that_is_dropped_frees_the_engine(self, run: Run) -> None:
        engine = FakeSynthesizer(lambda *_: Script(samples=2_400_000, delay=0.05))
        async with run(engine) as running:
            async with socket(running) as connection:
                await send(connection, text="Hello you. ", flush=True)
                await connection.recv()
                connection.transport.abort()
            while engine.running:
                await asyncio.sleep(0.001)
            await running.quiet()

    @pytest.mark.parametrize(
        ("voice", "query", "first", "error"),
        [
            ("nobody", {}, {"text": " "}, "voice_id_does_not_exist"),
            ("ann", {"model_id": "eleven_v9"}, {"text": " "}, "model_not_found"),
            ("ann", {"output_format": "midi"}, {"text": " "}, "unknown_format"),
            ("ann", {"language_code": "fr"}, {"text": " "}, "unsupported_language"),
            ("ann", {"inactivity_timeout": "181"}, {"text": " "}, "bad_field"),
            ("ann", {"auto_mode": "perhaps"}, {"text": " "}, "bad_field"),
            ("ann", {"seed": "-1"}, {"text": " "}, "bad_field"),
            ("ann", {"optimize_streaming_latency": "9"}, {"text": " "}, "bad_field"),
            ("ann", {"apply_text_normalization": "no"}, {"text": " "}, "bad_field"),
            ("ann", {"apply_text_normalization": "off"}, {"text": " "}, "unsupported_parameter"),
            ("ann", {"enable_ssml_parsing": "true"}, {"text": " "}, "unsupported_parameter"),
            ("ann", {}, {"text": " ", "voice_settings": {"stability": 2}}, "bad_field"),
            ("ann", {}, {"text": 5}, "bad_field"),
            ("ann", {}, {"text": "Hi. ", "voice_settings": {"speed": 9}}, "invalid_voice_settings"),
            (
                "ann",
                {},
                {"text": " ", "generation_config": {"chunk_length_schedule": [5]}},
                "bad_field",
            ),
        ],
    )
    async def test_refusals_say_why(
        self, run: Run, voice: str, query: dict[str, Any], first: dict[str, Any], error: str
    ) -> None:
        async with run() as running, socket(running, voice=voice, **query) as connection:
            try:
                await send(connection, **first)
                await send(connection, text="")
            except ConnectionClosed:
                pass
            messages = await rest(connection)
            assert connection.close_code == 1008
        assert messages[-1]["error"] == error
        assert messages[-1]["message"]

    @pytest.mark.parametrize("path", ["stream-input", "multi-stream-input"])
    async def test_what_is_left_out_is_told_with_the_first_sound(self, run: Run, path: str) -> None:
        settings = {"stability": 0.5, "similarity_boost": 0.8, "speed": 1.1}
        async with run() as running, socket(running, path) as connection:
            await send(connection, text=" ", voice_settings=settings, mood="glad")
            await send(connection, text=TEXT + " ")
            await send(connection, **({"close_socket": True} if "multi" in path else {"text": ""}))
            messages = await rest(connection)
        assert messages[0]["ignored"] == ["stability", "similarity_boost", "mood"]
        assert not any("ignored" in message for message in messages[1:])

    async def test_a_server_that_is_full_or_fails_says_so(self, run: Run) -> None:
        engine = FakeSynthesizer(
            lambda *_: Script(fail_after=0, error=SpeechError("runaway", "No end."))
        )
        async with run(engine, max_sessions=1) as running:
            async with socket(running) as connection:
                await send(connection, text="Hello you. ")
                await send(connection, text="")
                assert (await rest(connection))[-1]["error"] == "runaway"
            async with running.client(), socket(running) as connection:
                await send(connection, text="Hello you. ")
                await send(connection, text="")
                assert (await rest(connection))[-1]["error"] == "system_busy"

    async def test_nothing_to_say_is_no_error(self, run: Run) -> None:
        async with run() as running, socket(running) as connection:
            await send(connection, text=" ")
            await send(connection, text="")
            assert [m["isFinal"] for m in await rest(connection)] == [True]
            assert connection.close_code == 1000

    async def test_pages_of_other_origins_are_kept_out(self, run: Run) -> None:
        async with run() as running:
            url = f"ws://127.0.0.1:{running.port}/v1/text-to-speech/ann/stream-input"
            with pytest.raises(Exception, match="403"):
                await connect(url, origin="https://elsewhere.example")  # type: ignore[arg-type]

    async def test_convert_realtime(self, run: Run) -> None:
        async with run() as running:

            def text() -> Iterator[str]:
                yield from ("Hello ", "there. ", "How are ", "you ", "today?")

            def speak() -> bytes:
                sync = ElevenLabs(base_url=running.url, api_key="none")
                # The library insists on TLS here, whatever the base URL says.
                sync.text_to_speech._ws_base_url = running.url
                return b"".join(sync.text_to_speech.convert_realtime("ann", text=text()))

            data = await asyncio.to_thread(speak)
        samples, rate = decoded(data, "mp3")
        assert rate == 44_100
        assert 0.7 < samples.size / rate < 1.3

    async def test_convert_realtime_as_it_comes(self, run: Run) -> None:
        """Over TLS nothing of the library has to be touched."""
        program = (
            "import sys; from elevenlabs.client import ElevenLabs\n"
            "api = ElevenLabs(base_url=sys.argv[1], api_key='none').text_to_speech\n"
            "for part in api.convert_realtime('ann', text=iter(['Hello ', 'you.'])):\n"
            "    sys.stdout.buffer.write(part)\n"
        )
        tls = {"tls_cert": CERTIFICATES / "server.pem", "tls_key": CERTIFICATES / "server.key"}
        async with run(**{name: str(path) for name, path in tls.items()}) as running:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, running.url.replace("http:", "https:"),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "SSL_CERT_FILE": str(CERTIFICATES / "ca.pem")},
            )  # fmt: skip
            data, _ = await process.communicate()
            assert process.returncode == 0
        assert decoded(data, "mp3")[1] == 44_100

    async def test_convert_realtime_raises_what_was_refused(self, run: Run) -> None:
        async with run() as running:

            def speak() -> bytes:
                sync = ElevenLabs(base_url=running.url, api_key="none")
                sync.text_to_speech._ws_base_url = running.url
                parts = sync.text_to_speech.convert_realtime("nobody", text=iter(()))
                return b"".join(parts)

            with pytest.raises(ApiError) as refused:
                await asyncio.to_thread(speak)
        assert "voice_id nobody does not exist" in str(refused.value.body)


class TestMultiStreamInput:
    async def test_contexts_speak_side_by_side(self, run: Run) -> None:
        async with run() as running, socket(running, "multi-stream-input") as connection:
            for name in ("a", "b"):
                await send(connection, text=" ", context_id=name)
                await send(connection, text=f"This is {name}. ", context_id=name)
            await send(connection, close_socket=True)
            messages = await rest(connection)
            assert connection.close_code == 1000
        for name in ("a", "b"):
            mine = [each for each in messages if each["contextId"] == name]
            assert text_of(mine) == f"This is {name}. "
            assert audio_of(mine)
            assert [each["isFinal"] for each in mine][-1] is True

    async def test_closing_a_context_stops_it_and_no_other(self, run: Run) -> None:
        def script(request: SpeechRequest, _: int) -> Script:
            endless = "endless" in request.text
            return Script(samples=2_400_000, delay=0.05) if endless else Script()

        engine = FakeSynthesizer(script)
        async with run(engine) as running, socket(running, "multi-stream-input") as connection:
            await send(connection, text="An endless story. And ", context_id="a")
            assert json.loads(await connection.recv())["contextId"] == "a"
            await send(connection, context_id="a", close_context=True)
            while not (message := json.loads(await connection.recv()))["isFinal"]:
                pass
            assert message["contextId"] == "a"
            while engine.running:
                await asyncio.sleep(0.001)
            await send(connection, text="Something else. ", context_id="b", flush=True)
            assert json.loads(await connection.recv())["contextId"] == "b"
            # The name can be used again.
            await send(connection, text="Again. ", context_id="a", flush=True)
            await send(connection, close_socket=True)
            messages = await rest(connection)
        assert text_of([each for each in messages if each["contextId"] == "a"]) == "Again. "

    async def test_a_flushed_context_is_closed_after_its_audio(self, run: Run) -> None:
        async with run() as running, socket(running, "multi-stream-input") as connection:
            await send(connection, text="To the end. ", context_id="a", flush=True)
            await send(connection, context_id="a", close_context=True)
            messages = []
            while not messages or not messages[-1]["isFinal"]:
                messages.append(json.loads(await connection.recv()))
        assert text_of(messages) == "To the end. "

    async def test_a_flush_opens_nothing(self, run: Run) -> None:
        async with run() as running, socket(running, "multi-stream-input") as connection:
            await send(connection, context_id="a", flush=True)
            error = json.loads(await connection.recv())
            assert (error["error"], error["contextId"]) == ("context_not_found", "a")
            assert not running.gateway.sessions.live
            await send(connection, context_id="a", close_context=True)
            await send(connection, text="Hi. ", flush=True)
            assert json.loads(await connection.recv())["contextId"] is None

    async def test_five_contexts_and_no_more(self, run: Run) -> None:
        async with run() as running, socket(running, "multi-stream-input") as connection:
            for number in range(6):
                await send(connection, text=" ", context_id=str(number))
            error = json.loads(await connection.recv())
            assert (error["error"], error["contextId"]) == ("too_many_contexts", "5")
            await send(connection, context_id="0", close_context=True)
            assert json.loads(await connection.recv())["isFinal"]
            await send(connection, text="Hi. ", context_id="5", flush=True)
            assert json.loads(await connection.recv())["contextId"] == "5"

    async def test_an_idle_context_is_closed_unless_kept_alive(self, run: Run) -> None:
        async with run() as running:
            async with socket(running, "multi-stream-input", inactivity_timeout=1) as connection:
                for name in ("a", "b"):
                    await send(connection, text=" ", context_id=name)
                await asyncio.sleep(0.6)
                await send(connection, text="", context_id="a")
                first = json.loads(await connection.recv())
                second = json.loads(await connection.recv())
        assert [first["contextId"], second["contextId"]] == ["b", "a"]
        assert first["isFinal"]

    async def test_a_fault_in_one_context_is_told_there(self, run: Run) -> None:
        def script(request: SpeechRequest, _: int) -> Script:
            bad = "Bad" in request.text
            return Script(fail_after=0 if bad else None, error=SpeechError("runaway", "No end."))

        async with run(FakeSynthesizer(script)) as running:
            async with socket(running, "multi-stream-input") as connection:
                await send(connection, text="Bad. ", context_id="a", flush=True)
                error = json.loads(await connection.recv())
                assert (error["error"], error["contextId"]) == ("runaway", "a")
                await send(connection, text="Good. ", context_id="b", flush=True)
                assert json.loads(await connection.recv())["contextId"] == "b"


@pytest.mark.engine
def test_the_real_voice_speaks(spoken_url: str) -> None:
    api = ElevenLabs(base_url=spoken_url, api_key="none")
    api.text_to_speech._ws_base_url = spoken_url
    whole = b"".join(api.text_to_speech.convert("heart", text=TEXT))
    live = b"".join(api.text_to_speech.convert_realtime("heart", text=iter(TEXT.split())))
    for data in (whole, live):
        samples, rate = decoded(data, "mp3")
        assert 1.0 < samples.size / rate < 6.0
        assert np.sqrt(np.mean(samples**2)) > 0.01
    timed = api.text_to_speech.convert_with_timestamps("heart", text=TEXT)
    assert timed.alignment is not None
    assert "".join(timed.alignment.characters) == TEXT
