"""Voices and prompts of a ChatTTS release."""

from __future__ import annotations

import json
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chattts_reference as reference
import numpy as np
import pytest

from engine.api import Sampling, SpeechError, SpeechRequest
from engine.checkpoints import base16384
from engine.checkpoints.base import CheckpointError, PromptContext
from engine.checkpoints.chattts import MAX_CONTEXT_POSITIONS, ChatTTSCheckpoint, speed_tag
from engine.checkpoints.chattts_release import Release
from engine.checkpoints.chattts_speakers import Speakers
from engine.checkpoints.random_release import SMALL, write_release
from engine.checkpoints.speaker_vectors import encode_codes, encode_vector, unit
from engine.frames import FRAME_BASE, SPEAKER_BASE, STATIC_BASE, FrameStore, StoreShape

HIDDEN = SMALL.hidden
VECTOR = reference.speaker_vector(HIDDEN)
CODES = reference.reference_codes()


class Store(FrameStore):
    block_size = 32


@pytest.fixture
def store() -> Iterator[Store]:
    found = Store.create(StoreShape(rows=64, codebooks=4, hidden_size=HIDDEN))
    assert isinstance(found, Store)
    yield found
    found.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release")
    write_release(directory, SMALL, seed=1)
    return directory


@pytest.fixture
def release(plain: Path, tmp_path: Path) -> Path:
    """A release whose large files are links, to add voices to."""
    directory = tmp_path / "release"
    directory.mkdir()
    shutil.copytree(
        plain / "asset", directory / "asset", copy_function=lambda a, b: Path(b).symlink_to(a)
    )
    return directory


def with_voices(release: Path, voices: dict[str, Any]) -> Path:
    (release / "voices.json").write_text(json.dumps(voices), encoding="utf-8")
    return release


def with_statistics(release: Path) -> Path:
    text = base16384.encode(reference.speaker_statistics(HIDDEN).tobytes())
    (release / "asset/spk_stat.txt").write_text(text, encoding="utf-8")
    return release


def opened(release: Path, store: Store, **options: Any) -> ChatTTSCheckpoint:
    checkpoint = ChatTTSCheckpoint.load(release, **options)
    checkpoint.register(store)
    return checkpoint


# -- voices --------------------------------------------------------------------------------------


def test_voices_that_are_not_listed_make_room_for_others(release: Path) -> None:
    now = 0.0
    store = Store.create(
        StoreShape(rows=64, codebooks=4, hidden_size=HIDDEN, speaker_rows=3, static_rows=1)
    )
    found = Release.open(with_statistics(release))
    speakers = Speakers(found, 1, lambda: now)
    speakers.register(
        store, open_speaker=0, read=lambda _text: (), encode=lambda _pcm: np.zeros((0, 4), np.int16)
    )
    listed = speakers.get("default")
    first, second = speakers.get("random-7"), speakers.get("random-8")
    kept = {
        speaker.id: store.speakers[(speaker.id - SPEAKER_BASE) % 3].copy()
        for speaker in (listed, second)
    }
    now = 500.0
    assert speakers.get("random-7") == first
    with pytest.raises(SpeechError) as full:
        speakers.get("random-9")
    assert full.value.code == "engine_full"
    now = 700.0
    assert speakers.get("random-8") == second
    now = 1101.0
    # The one not asked for longest goes, and not the listed one.
    third = speakers.get("random-9")
    assert third.id not in (listed.id, first.id, second.id)
    assert (third.id - first.id) % 3 == 0
    for id, vector in kept.items():
        assert np.array_equal(store.speakers[(id - SPEAKER_BASE) % 3], vector)
    assert speakers.get("random-8") == second
    now = 3000.0
    assert speakers.get("random-7").id not in (first.id, second.id, third.id, listed.id)
    store.close()


def test_without_voices_the_speaker_is_left_open(release: Path, store: Store) -> None:
    checkpoint = opened(release, store)
    assert [voice.id for voice in checkpoint.voices()] == ["default"]
    prompt = checkpoint.plan(SpeechRequest("hello")).prompt
    assert prompt[:2] == [checkpoint.token("[Stts]"), checkpoint.token("[empty_spk]")]


def keys_of(checkpoint: ChatTTSCheckpoint) -> dict[str, str]:
    return {voice.id: voice.key for voice in checkpoint.voices()}


def test_voices_that_come_change_and_go_are_read_while_it_runs(release: Path, store: Store) -> None:
    other = {"speaker": encode_vector(reference.speaker_vector(HIDDEN, 5))}
    anna = {"speaker": encode_vector(VECTOR)}
    checkpoint = opened(with_voices(release, {"anna": anna, "bao": anna}), store)
    before = keys_of(checkpoint)
    prompt, others = (
        checkpoint.plan(SpeechRequest("hello", voice=voice)).prompt for voice in ("anna", "bao")
    )
    assert checkpoint.voice_files() == (release / "voices.json",)
    with_voices(release, {"anna": other, "bao": {**anna, "name": "Bao"}, "carl": {**other}})
    checkpoint.read_voices()()
    after = keys_of(checkpoint)
    assert list(after) == ["default", "anna", "bao", "carl"]
    assert after["bao"] == before["bao"], "only told of otherwise"
    assert after["anna"] != before["anna"]
    assert after["default"] == after["anna"]
    assert [v.name for v in checkpoint.voices() if v.id == "bao"] == ["Bao"]
    new = checkpoint.plan(SpeechRequest("hello", voice="anna")).prompt
    assert new[1] != prompt[1]
    for key in (before["anna"], before["default"]):
        kept = checkpoint.plan(SpeechRequest("hello", voice=key)).prompt
        assert kept == prompt, "who speaks with it goes on as before"
    with_voices(release, {"carl": other})
    checkpoint.read_voices()()
    assert list(keys_of(checkpoint)) == ["default", "carl"]
    assert checkpoint.plan(SpeechRequest("hello", voice=before["bao"])).prompt == others
    with pytest.raises(SpeechError):
        checkpoint.plan(SpeechRequest("hello", voice="bao"))


def test_voices_that_are_wrong_change_nothing(release: Path, store: Store) -> None:
    anna = {"speaker": encode_vector(VECTOR)}
    checkpoint = opened(with_voices(release, {"anna": anna}), store)
    before = keys_of(checkpoint)
    with_voices(release, {"anna": anna, "bad": {"speaker": "x"}, "worse": {"spekaer": "x"}})
    with pytest.raises(CheckpointError, match=r"'bad'.*'worse'"):
        checkpoint.read_voices()
    (release / "voices.json").write_text("{")
    with pytest.raises(CheckpointError, match="no JSON"):
        checkpoint.read_voices()
    # More than there is room for.
    many = {
        f"v{n}": {"speaker": encode_vector(reference.speaker_vector(HIDDEN, n))} for n in (7, 8)
    }
    store._header[12] = store.shape.speaker_rows - 1
    with_voices(release, many)
    with pytest.raises(SpeechError, match="room"):
        checkpoint.read_voices()()
    assert keys_of(checkpoint) == before
    checkpoint.plan(SpeechRequest("hello", voice="anna"))


def test_a_speaker_vector_is_registered_normalised(release: Path, store: Store) -> None:
    (release / "anna.txt").write_text(encode_vector(VECTOR), encoding="utf-8")
    with_voices(
        release,
        {
            "anna": {"speaker_file": "anna.txt", "gender": "female", "languages": ["en"]},
            "same": {"speaker": encode_vector(VECTOR)},
        },
    )
    checkpoint = opened(release, store)
    cards = {voice.id: voice for voice in checkpoint.voices()}
    assert list(cards) == ["default", "anna", "same"]
    assert (cards["anna"].gender, cards["anna"].languages) == ("female", ("en",))
    for voice in cards:
        row = checkpoint.plan(SpeechRequest("hello", voice=voice)).prompt[1] - SPEAKER_BASE
        assert (store.speakers[row] == unit(VECTOR)).all()
    assert store.speakers_used == 2


def test_a_speaker_text_is_a_voice(release: Path, store: Store) -> None:
    checkpoint = opened(release, store)
    request = SpeechRequest("hello", voice=encode_vector(VECTOR))
    row = checkpoint.plan(request).prompt[1] - SPEAKER_BASE
    assert (store.speakers[row] == unit(VECTOR)).all()
    checkpoint.plan(request)
    assert store.speakers_used == 1


def test_a_sample_stands_after_the_text(release: Path, store: Store) -> None:
    with_voices(
        release,
        {
            "bea": {
                "speaker": encode_vector(VECTOR),
                "reference_text": "this is it.",
                "reference_codes": encode_codes(CODES),
            }
        },
    )
    checkpoint = opened(release, store)
    prompt = checkpoint.plan(SpeechRequest("hello", voice="bea")).prompt
    end = prompt.index(checkpoint.token("[Ptts]"))
    frames = prompt[end + 1 :]
    assert frames == list(range(frames[0], frames[0] + len(CODES)))
    first = frames[0] - STATIC_BASE
    assert (store.static[first : first + len(CODES)] == CODES).all()
    speed = prompt.index(checkpoint.token("[speed_5]"))
    assert 2 < speed < end


def test_a_recording_is_encoded_by_the_dvae(release: Path, store: Store) -> None:
    noise = np.random.default_rng(0).integers(-9000, 9000, 24_000).astype("<i2")
    with wave.open(str(release / "cora.wav"), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(noise.tobytes())
    with_voices(release, {"cora": {"reference_audio": "cora.wav", "reference_text": "noise"}})
    checkpoint = opened(release, store)
    wanted = checkpoint.codec().encode(noise.astype(np.float32) / 32768)
    prompt = checkpoint.plan(SpeechRequest("hello", voice="cora")).prompt
    frames = [token - STATIC_BASE for token in prompt if token >= STATIC_BASE]
    assert (store.static[frames] == wanted).all()


def test_random_speakers(release: Path, store: Store) -> None:
    checkpoint = opened(with_statistics(release), store, random_speakers=2)
    assert [voice.id for voice in checkpoint.voices()] == ["default", "random-0", "random-1"]
    ids = [
        checkpoint.plan(SpeechRequest("hello", voice=f"random-{seed}")).prompt[1]
        for seed in (0, 1, 7)
    ]
    rows = store.speakers[[token - SPEAKER_BASE for token in ids]]
    assert len({row.tobytes() for row in rows}) == 3


def test_random_speakers_need_the_statistics(release: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Put spk_stat\.pt of the release into asset/"):
        ChatTTSCheckpoint.load(release, random_speakers=1)


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"speaker": "abc"}, "not base16384"),
        ({"speaker": encode_vector(np.ones(768))}, "holds more than 128 numbers"),
        ({"speaker_file": "none.txt"}, "none.txt"),
        ({"reference_text": "x"}, "needs reference_codes or reference_audio"),
        ({"reference_codes": encode_codes(CODES)}, "needs its reference_text"),
        ({"colour": "red"}, "unknown keys colour"),
        ({"languages": ["fr"]}, "languages"),
        ({"name": 3}, "name"),
        ({"reference_audio": "wide.wav", "reference_text": "x"}, "ffmpeg -i wide.wav"),
    ],
)
def test_faults_of_voices_are_explained(release: Path, entry: dict[str, Any], wanted: str) -> None:
    with wave.open(str(release / "wide.wav"), "wb") as file:
        file.setparams((2, 2, 44_100, 0, "NONE", ""))
        file.writeframes(bytes(400))
    with_voices(release, {"dora": entry, "eva": {"speaker": "?"}})
    with pytest.raises(CheckpointError) as caught:
        ChatTTSCheckpoint.load(release)
    assert wanted in str(caught.value)
    assert "voice 'eva'" in str(caught.value)


@pytest.mark.parametrize("voice", ["nobody", "random-1", "一" * 200])
def test_an_unknown_voice(release: Path, store: Store, voice: str) -> None:
    checkpoint = opened(release, store)
    for plan in (checkpoint.plan, checkpoint.refine):
        with pytest.raises(SpeechError) as caught:
            plan(SpeechRequest("hello[oral_2]", voice=voice))
        assert caught.value.code == "unknown_voice"


# -- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "text", "speed"),
    [("plain", "english", 1.0), ("speaker", "mixed", 0.76), ("sample", "mandarin", 1.0)],
)
def test_prompts_are_those_of_the_reference(
    release: Path, store: Store, case: str, text: str, speed: float
) -> None:
    entry: dict[str, str] = {}
    if case != "plain":
        entry["speaker"] = encode_vector(VECTOR)
    if case == "sample":
        entry["reference_text"] = reference.REFERENCE_TEXT
        entry["reference_codes"] = encode_codes(CODES)
    checkpoint = opened(with_voices(release, {"default": entry}), store)
    prompt = checkpoint.plan(SpeechRequest(reference.TEXTS[text], speed=speed)).prompt
    speaker = checkpoint.token("[spk_emb]")
    found = [speaker if SPEAKER_BASE <= token < STATIC_BASE else token for token in prompt]
    wanted = reference.arrays("gpt_small")[f"{case}.text_ids"].tolist()
    assert found[: len(wanted)] == wanted
    assert len(found) - len(wanted) == (len(CODES) if case == "sample" else 0)


def test_a_text_with_oral_tags_is_refined_first(release: Path, store: Store) -> None:
    checkpoint = opened(release, store)
    request = SpeechRequest(reference.TEXTS["mandarin"] + reference.REFINE_PROMPT, seed=5)
    plan = checkpoint.refine(request)
    assert plan is not None
    assert plan.prompt == reference.arrays("gpt_small")["refine.text_ids"].tolist()
    assert plan.sampling.mode == "text"
    assert (plan.sampling.temperature, plan.sampling.repetition_penalty) == (0.7, 1.0)
    assert plan.sampling.max_frames == 384

    said = [checkpoint.token("[uv_break]"), 2000, checkpoint.token("[Stts]"), 2001]
    spoken = checkpoint.plan(request, said)
    assert spoken.continuation == (checkpoint.token("[uv_break]"), 2000, 2001)
    assert checkpoint.refine(SpeechRequest("hello")) is None


def test_a_style_is_refined_as_tags_in_the_text_are(release: Path, store: Store) -> None:
    checkpoint = opened(release, store)
    style = tuple(reference.REFINE_PROMPT.strip("[]").split("]["))
    assert set(style) <= set(checkpoint.limits(1).styles)
    tagged = SpeechRequest(reference.TEXTS["mandarin"] + reference.REFINE_PROMPT, seed=5)
    styled = SpeechRequest(reference.TEXTS["mandarin"], seed=5, style=style)
    assert checkpoint.refine(styled) == checkpoint.refine(tagged)
    # What the text itself says of a kind goes first.
    both = SpeechRequest(tagged.text, seed=5, style=("oral_9", "laugh_2"))
    plan, expected = checkpoint.refine(both), checkpoint.refine(tagged)
    assert plan is not None
    assert expected is not None
    assert sorted(plan.prompt) == sorted(expected.prompt)


def test_an_empty_refined_text_falls_back_to_the_text(release: Path, store: Store) -> None:
    checkpoint = opened(release, store)
    request = SpeechRequest("hello[oral_2]")
    assert checkpoint.plan(request, []).continuation == checkpoint.plan(request).continuation


def test_the_previous_piece_continues_the_reference(release: Path, store: Store) -> None:
    checkpoint = opened(release, store)
    first = checkpoint.plan(SpeechRequest("hello there"))
    frames = (FRAME_BASE + 5, FRAME_BASE + 6)
    context = PromptContext("default", first.continuation + frames)
    prompt = checkpoint.plan(SpeechRequest("and on", context=context)).prompt
    assert tuple(prompt[-2:]) == frames
    assert tuple(prompt[2 : 2 + len(first.continuation)]) == first.continuation

    alone = checkpoint.plan(SpeechRequest("and on")).prompt
    other = PromptContext("bea", context.tokens)
    long = PromptContext("default", context.tokens + (FRAME_BASE,) * MAX_CONTEXT_POSITIONS)
    for unusable in (other, long, "nonsense"):
        assert checkpoint.plan(SpeechRequest("and on", context=unusable)).prompt == alone


@pytest.mark.parametrize(
    ("factor", "tag"),
    [
        (0.5, "[speed_0]"),
        (0.75, "[speed_3]"),
        (1.0, "[speed_5]"),
        (1.3, "[speed_7]"),
        (2.0, "[speed_9]"),
    ],
)
def test_speed_tags(factor: float, tag: str) -> None:
    assert speed_tag(factor) == tag


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SpeechRequest("hello", speed=3), "bad_speed"),
        (SpeechRequest("a " * 300), "text_too_long"),
        (SpeechRequest("好" * 390 + "长长长长长长长长长长长"), "text_too_long"),
        (SpeechRequest(" "), "empty_text"),
        (SpeechRequest("😀😀"), "unpronounceable"),
    ],
)
def test_requests_that_cannot_be_spoken(
    release: Path, store: Store, request_: SpeechRequest, code: str
) -> None:
    checkpoint = opened(release, store)
    for plan in (checkpoint.plan, checkpoint.refine):
        with pytest.raises(SpeechError) as caught:
            plan(request_)
        assert caught.value.code == code


def test_sampling_defaults_are_the_releases_and_a_request_may_change_them(
    release: Path, store: Store
) -> None:
    checkpoint = opened(release, store)
    usual = checkpoint.plan(SpeechRequest("hello", seed=3)).sampling
    assert (usual.temperature, usual.top_p, usual.top_k) == (0.3, 0.7, 20)
    assert (usual.repetition_penalty, usual.repetition_window, usual.seed) == (1.05, 16, 3)
    asked = Sampling(temperature=0.9, top_k=5, max_frames=9000)
    changed = checkpoint.plan(SpeechRequest("hello", sampling=asked)).sampling
    assert (changed.temperature, changed.top_k, changed.top_p) == (0.9, 5, 0.7)
    assert changed.max_frames == 2048


def test_only_heads_of_whole_blocks_are_warmed(release: Path, store: Store) -> None:
    sample = {"reference_text": "a word and " * 8, "reference_codes": encode_codes(CODES)}
    with_voices(release, {"short": {"speaker": encode_vector(VECTOR)}, "long": sample})
    checkpoint = opened(release, store)
    prompts = checkpoint.warm_prompts()
    assert len(prompts) == 1
    full = checkpoint.plan(SpeechRequest("hello", voice="long")).prompt
    assert full[: len(prompts[0])] == prompts[0]
