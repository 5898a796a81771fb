"""A ChatTTS release through the engine's one door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import chattts_reference as reference
import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio

from engine.api import SAMPLES_PER_FRAME, AudioChunk, Sampling, SpeechError, SpeechRequest
from engine.checkpoints.base import PromptContext
from engine.checkpoints.random_release import SMALL, write_release
from engine.checkpoints.speaker_vectors import encode_vector
from engine.frames import FRAME_BASE
from engine.settings import EngineSettings
from engine.synthesizer import EngineSynthesizer

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

FRAMES = 40
SHORT = Sampling(min_frames=FRAMES, max_frames=FRAMES)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineSynthesizer]:
    release: Path = tmp_path_factory.mktemp("release")
    write_release(release, SMALL, seed=1)
    synthesizer = EngineSynthesizer(
        EngineSettings(checkpoint=release, max_streams=4, kv_cache_bytes=1 << 27, compiled=False)
    )
    await synthesizer.start()
    yield synthesizer
    await synthesizer.close()


@dataclass
class Spoken:
    """A piece as it came out, and the frames it was made of."""

    pcm: npt.NDArray[np.float32]
    last: AudioChunk
    codes: npt.NDArray[np.int16]


async def speak(engine: EngineSynthesizer, request: SpeechRequest) -> Spoken:
    chunks = [chunk async for chunk in engine.speak(request)]
    context = chunks[-1].context
    assert isinstance(context, PromptContext)
    # How a piece is cut into windows depends on time, and with it the audio of a codec that looks
    # ahead; the frames do not.
    codes, _ = engine._lm._store.read([t for t in context.tokens if t >= FRAME_BASE])
    return Spoken(np.concatenate([chunk.pcm for chunk in chunks]), chunks[-1], codes)


async def test_a_piece_is_spoken_from_the_hidden_states(engine: EngineSynthesizer) -> None:
    request = SpeechRequest("hello there", seed=3, sampling=SHORT)
    first, again = await speak(engine, request), await speak(engine, request)
    assert (FRAMES - 1) * SAMPLES_PER_FRAME < len(first.pcm) <= FRAMES * SAMPLES_PER_FRAME
    assert first.last.final
    assert np.isfinite(first.pcm).all()
    assert first.pcm.std() > 0
    assert first.codes.shape == (FRAMES, 4)
    assert (first.codes == again.codes).all()


async def test_the_speaker_changes_the_speech(engine: EngineSynthesizer) -> None:
    voice = encode_vector(reference.speaker_vector(SMALL.hidden))
    plain = await speak(engine, SpeechRequest("hello there", seed=3, sampling=SHORT))
    other = await speak(engine, SpeechRequest("hello there", voice=voice, seed=3, sampling=SHORT))
    assert (plain.codes != other.codes).any()


async def test_a_piece_may_continue_the_one_before(engine: EngineSynthesizer) -> None:
    first = await speak(engine, SpeechRequest("hello there", seed=3, sampling=SHORT))
    alone = await speak(engine, SpeechRequest("and on", seed=3, sampling=SHORT))
    following = await speak(
        engine, SpeechRequest("and on", seed=3, sampling=SHORT, context=first.last.context)
    )
    assert following.last.prompt_tokens > FRAMES
    assert (following.codes != alone.codes).any()


async def test_a_refined_text_is_spoken_in_place_of_the_text(engine: EngineSynthesizer) -> None:
    plain = await speak(engine, SpeechRequest("hello there", seed=3, sampling=SHORT))
    request = SpeechRequest("hello there[oral_2][break_4]", seed=3, sampling=SHORT)
    refined = await speak(engine, request)
    assert (refined.codes != plain.codes).any()
    # Random weights never end a text: it is as long as a refined text may be.
    assert refined.last.prompt_tokens > 300


async def test_a_voice_that_is_not_there_fails_alone(engine: EngineSynthesizer) -> None:
    with pytest.raises(SpeechError) as caught:
        await speak(engine, SpeechRequest("hello", voice="nobody"))
    assert caught.value.code == "unknown_voice"
    await speak(engine, SpeechRequest("hello there", seed=3, sampling=SHORT))


async def test_a_voice_that_is_added_speaks_and_one_that_is_changed_goes_on(
    engine: EngineSynthesizer,
) -> None:
    [file] = engine.voice_files()

    async def told(name: str, seed: int) -> str:
        """The key of a voice, after its vector became another one."""
        vector = encode_vector(reference.speaker_vector(SMALL.hidden, seed))
        file.write_text(json.dumps({"first": {}, name: {"speaker": vector}}), encoding="utf-8")
        await engine.reload_voices()
        return next(voice.key for voice in engine.voices() if voice.id == name)

    def request(voice: str) -> SpeechRequest:
        return SpeechRequest("hello there", voice=voice, seed=3, sampling=SHORT)

    old = await told("anna", 11)
    first = await speak(engine, request("anna"))
    new = await told("anna", 12)
    changed = await speak(engine, request("anna"))
    assert old != new
    assert (changed.codes != first.codes).any()
    assert (changed.codes == (await speak(engine, request(new))).codes).all()
    assert (first.codes == (await speak(engine, request(old))).codes).all()
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="no JSON"):
        await engine.reload_voices()
    assert (changed.codes == (await speak(engine, request("anna"))).codes).all()
    file.unlink()
    await engine.reload_voices()
