"""The embedded voice as a checkpoint: prompts, limits, expectations."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import engine.voices
from engine.api import SpeechError, SpeechRequest
from engine.checkpoints.base import CheckpointError, Codes, PromptContext
from engine.checkpoints.mini import MAX_CONTEXT, MAX_PHONEMES, MAX_TEXT_CHARS, MiniCheckpoint
from engine.lm_config import LmConfig

FOLDER = Path(engine.voices.__file__).parent / "mini"
FIRST_FRAME = 1_000_000
START_TEXT, START_CODES, FIRST_SPEED, SPEAKER_IDS = 178, 179, 181, range(186, 193)


class Store:
    """A registrar that only numbers what it is given."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.rows: list[list[int]] = []

    def register_frames(self, codes: Codes) -> list[int]:
        first = FIRST_FRAME + len(self.rows)
        self.rows += codes.tolist()
        return list(range(first, first + len(codes)))

    def register_speaker(self, vector: object) -> int:
        raise AssertionError("this family has no speaker vectors")


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(32)


@pytest.fixture(scope="module")
def mini(store: Store) -> MiniCheckpoint:
    checkpoint = MiniCheckpoint.embedded()
    checkpoint.register(store)
    return checkpoint


def piece_of(prompt: list[int]) -> list[int]:
    """The last utterance of a prompt."""
    last = len(prompt) - 1 - prompt[::-1].index(START_TEXT)
    return prompt[last:]


def test_what_it_says_of_itself(mini: MiniCheckpoint) -> None:
    assert [voice.id for voice in mini.voices()] == ["default", "heart", "jf_gongitsune", "jm_kumo"]
    assert all(voice.name and voice.description and voice.languages for voice in mini.voices())
    limits = mini.limits(32)
    assert (limits.max_text_chars, limits.max_streams) == (MAX_TEXT_CHARS, 32)
    assert (limits.min_speed, limits.max_speed) == (0.8, 1.25)


def test_model_folder_is_one_the_language_model_accepts(mini: MiniCheckpoint) -> None:
    config = json.loads((mini.model_dir() / "config.json").read_text())
    lm = LmConfig.from_dict(config["voxgate"], vocab_size=config["vocab_size"])
    assert lm.sampled_codebooks == (0, 2)
    assert lm.fixed_codes == {1: 312, 3: 312}
    assert config["architectures"] == ["VoxgateForCausalLM"]


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_speaker_prompts_fill_whole_blocks(block_size: int) -> None:
    store = Store(block_size)
    checkpoint = MiniCheckpoint.embedded()
    checkpoint.register(store)
    prompts = checkpoint.warm_prompts()
    assert len(prompts) == 5
    for prompt in prompts:
        assert len(prompt) % block_size == 1
        assert prompt[0] in SPEAKER_IDS
        assert prompt[1] == START_TEXT
        assert min(prompt[prompt.index(START_CODES) + 1 : -1]) >= FIRST_FRAME
    assert len({tuple(prompt) for prompt in prompts}) == 5


def test_reference_frames_hold_the_fixed_codes(mini: MiniCheckpoint, store: Store) -> None:
    rows = np.array(store.rows)
    assert (rows[:, [1, 3]] == 312).all()
    assert rows.min() >= 0
    assert rows.max() < 625
    assert len(np.unique(rows[:, 0])) > 100


def test_a_piece_follows_its_speaker(mini: MiniCheckpoint) -> None:
    plan = mini.plan(SpeechRequest("Hello.", seed=7))
    speakers = [prompt[:-1] for prompt in mini.warm_prompts()]
    (speaker,) = [s for s in speakers if plan.prompt[: len(s)] == s]
    piece = plan.prompt[len(speaker) :]
    assert tuple(piece) == plan.continuation
    assert piece[:2] == [START_TEXT, FIRST_SPEED + 2]
    assert piece[-2] == START_CODES
    assert piece[-1] == speaker[speaker.index(START_CODES) + 1], "begins as the reference does"
    assert plan.lead is not None
    assert np.array_equal(plan.lead, mini.reference("heart", "en").codes[:1])
    assert plan.sampling.seed == 7
    assert (plan.sampling.temperature, plan.sampling.top_p, plan.sampling.top_k) == (0.3, 0.7, 20)


def test_the_automatic_voice_follows_the_language(mini: MiniCheckpoint) -> None:
    assert mini.plan(SpeechRequest("Good morning.")).voice == "heart"
    assert mini.plan(SpeechRequest("早上好。")).voice == "jf_gongitsune"
    assert mini.plan(SpeechRequest("42", language="zh")).voice == "jf_gongitsune"


@pytest.mark.parametrize("voice", ["jm_kumo", "jf_gongitsune"])
def test_a_named_voice_takes_the_reference_in_the_piece_s_language(
    mini: MiniCheckpoint, voice: str
) -> None:
    english = mini.plan(SpeechRequest("Good morning.", voice=voice))
    mandarin = mini.plan(SpeechRequest("早上好。", voice=voice))
    assert english.voice == mandarin.voice == voice
    assert english.prompt[0] == mandarin.prompt[0]
    assert english.prompt[3:20] != mandarin.prompt[3:20]


def test_a_voice_of_one_language_still_speaks_the_other(mini: MiniCheckpoint) -> None:
    assert mini.plan(SpeechRequest("早上好。", voice="heart")).voice == "heart"


@pytest.mark.parametrize(
    ("speed", "index"), [(0.8, 0), (0.84, 0), (0.86, 1), (1.0, 2), (1.05, 2), (1.1, 3), (1.25, 4)]
)
def test_speed_is_the_nearest_trained_one(mini: MiniCheckpoint, speed: float, index: int) -> None:
    plan = mini.plan(SpeechRequest("Hello there, everyone.", speed=speed))
    assert piece_of(plan.prompt)[1] == FIRST_SPEED + index


def test_faster_is_expected_to_be_shorter(mini: MiniCheckpoint) -> None:
    text = "This is a sentence of some length."
    lengths = [
        mini.plan(SpeechRequest(text, speed=s)).expected_frames for s in (0.8, 0.9, 1.0, 1.12, 1.25)
    ]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("text", ["Yes.", "是。", "word " * 40, "很长的句子" * 9])
def test_lengths_are_guarded_on_both_sides(mini: MiniCheckpoint, text: str) -> None:
    plan = mini.plan(SpeechRequest(text))
    assert 2 <= plan.sampling.min_frames < plan.expected_frames < plan.sampling.max_frames
    assert plan.sampling.max_frames <= 3 * plan.expected_frames + 48
    assert len(plan.prompt) + plan.sampling.max_frames <= 2048


def test_sampling_asked_for_is_used(mini: MiniCheckpoint) -> None:
    request = SpeechRequest("Hello.")
    asked = replace(request.sampling, temperature=0.5, top_k=5, min_frames=9, max_frames=90)
    sampling = mini.plan(replace(request, sampling=asked)).sampling
    assert (sampling.temperature, sampling.top_k) == (0.5, 5)
    assert (sampling.min_frames, sampling.max_frames) == (9, 90)
    assert sampling.top_p == 0.7


def follow(mini: MiniCheckpoint, texts: list[str], frames: int) -> list[list[int]]:
    """Prompts of a turn in which every piece came out `frames` long."""
    context: PromptContext | None = None
    prompts = []
    for text in texts:
        plan = mini.plan(SpeechRequest(text, context=context))
        prompts.append(plan.prompt)
        spoken = tuple(range(2 * FIRST_FRAME, 2 * FIRST_FRAME + frames))
        context = PromptContext(plan.voice, plan.continuation + spoken)
    return prompts


def test_a_turn_extends_the_prompt_of_the_piece_before(mini: MiniCheckpoint) -> None:
    first, second, third, fourth = follow(mini, ["One.", "Two.", "Three.", "Four."], frames=30)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    # Two pieces before are enough: the fourth follows the third alone.
    assert fourth.count(START_TEXT) == 3


def test_a_turn_of_long_pieces_stays_bounded(mini: MiniCheckpoint) -> None:
    texts = ["This sentence goes on and on for quite a while, as sentences do."] * 6
    prompts = follow(mini, texts, frames=500)
    speaker = len(prompts[0]) - len(piece_of(prompts[0]))
    for prompt in prompts:
        assert len(prompt) - len(piece_of(prompt)) - speaker <= MAX_CONTEXT
    longest = max(map(len, prompts)) + 1100
    assert longest <= 2048


def test_context_of_another_voice_is_left_out(mini: MiniCheckpoint) -> None:
    other = PromptContext("jm_kumo", (START_TEXT, FIRST_SPEED, START_CODES, FIRST_FRAME))
    alone = mini.plan(SpeechRequest("Hello.")).prompt
    assert mini.plan(SpeechRequest("Hello.", context=other)).prompt == alone
    endless = PromptContext("heart", (FIRST_FRAME,) * (MAX_CONTEXT + 1))
    assert mini.plan(SpeechRequest("Hello.", context=endless)).prompt == alone


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SpeechRequest("Hi.", voice="nobody"), "unknown_voice"),
        (SpeechRequest("Hi.", speed=3.0), "bad_speed"),
        (SpeechRequest("Hi.", speed=float("nan")), "bad_speed"),
        (SpeechRequest("Hi.", language="fr"), "unsupported_language"),  # type: ignore[arg-type]
        (SpeechRequest(" "), "empty_text"),
        (SpeechRequest("?!"), "unpronounceable"),
        (SpeechRequest("a" * (MAX_TEXT_CHARS + 1)), "text_too_long"),
        (SpeechRequest("好" * 200), "text_too_long"),
    ],
)
def test_what_cannot_be_spoken_is_refused(
    mini: MiniCheckpoint, request_: SpeechRequest, code: str
) -> None:
    with pytest.raises(SpeechError) as refused:
        mini.plan(request_)
    assert refused.value.code == code
    assert not refused.value.retryable


def test_a_piece_of_twelve_seconds_fits(mini: MiniCheckpoint) -> None:
    english = mini.plan(SpeechRequest("The quick brown fox jumps over the lazy dog again. " * 4))
    mandarin = mini.plan(SpeechRequest("今天的天气非常好，我们去公园散步吧。" * 3))
    for plan in (english, mandarin):
        assert len(plan.continuation) - 3 <= MAX_PHONEMES
        assert plan.expected_frames > 10 * 46.875


def test_codec_decodes_the_references(mini: MiniCheckpoint, store: Store) -> None:
    codec = mini.codec()
    assert codec.config.causal
    pcm = codec.decode(np.array(store.rows[:60], np.int16))
    assert pcm.shape == (60 * 512,)
    assert 0.02 < np.abs(pcm).max() <= 1


def test_what_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match=r"voices\.json, phonemes\.json, codec"):
        MiniCheckpoint.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "no JSON"), ("[]", "JSON object"), ('{"format": 99}', "format 99")],
)
def test_a_bad_config_is_named(tmp_path: Path, content: str, message: str) -> None:
    copy = shutil.copytree(
        FOLDER, tmp_path / "copy", ignore=shutil.ignore_patterns("*.safetensors")
    )
    (copy / "codec.safetensors").touch()
    (copy / "lm" / "model.safetensors").touch()
    (copy / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        MiniCheckpoint.load(copy)
