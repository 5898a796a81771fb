"""No clicks at seams that the engine's own audio lacks: 500 seams of the embedded voice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from fake_engine import tone

from engine.api import AUDIBLE, SAMPLE_RATE, Pcm
from gateway.encoding import PcmEncoder
from gateway.pauses import PAUSES
from gateway.seams import FADE, fade_in, fade_out, ring_out
from gateway.timeline import Timeline

HERE = Path(__file__).parent / "pieces"
SEAMS = 500
MILLISECOND = SAMPLE_RATE // 1000


def load_pieces() -> list[Pcm]:
    index = json.loads((HERE / "embedded_voice.json").read_text())
    audio, rate = soundfile.read(HERE / "embedded_voice.flac", dtype="float32")
    assert rate == SAMPLE_RATE
    return np.split(audio, np.cumsum([piece["samples"] for piece in index])[:-1])


PIECES = load_pieces()


def roughness(audio: Pcm) -> npt.NDArray[np.float64]:
    """How much each sample bends the waveform, against the 10 ms on either side of it.

    A click is a bend where the audio around has none; a voice bends all the time. The floor is the
    bend of a step at -70 dBFS: below that nobody hears anything.
    """
    bend = np.abs(np.diff(audio.astype(np.float64), 2, prepend=[audio[0]] * 2))
    energy = np.concatenate(([0.0], np.cumsum(bend**2)))
    at = np.arange(bend.size)
    near, far = MILLISECOND // 4, 10 * MILLISECOND

    def between(
        start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        start, end = np.clip(start, 0, bend.size), np.clip(end, 0, bend.size)
        return np.stack((energy[end] - energy[start], end - start))

    total, count = between(at - far, at - near) + between(at + near + 1, at + far + 1)
    around = np.sqrt(np.maximum(total, 0.0) / np.maximum(count, 1))
    return bend / (around + 10.0 ** (-70 / 20))


OWN = float(np.median([roughness(piece).max() for piece in PIECES]))
"""The worst bend of a piece of the engine's own audio, as a rule."""


def joined(pieces: list[Pcm], pauses: list[int]) -> tuple[Pcm, list[tuple[int, int]]]:
    """The turn as it is sent, and where in it each seam lies: end of one, start of the next."""
    timeline, packets = Timeline(PcmEncoder(20)), []
    seams, end = [], 0
    for piece, pause in zip(pieces, pauses, strict=True):
        start = timeline.samples
        timeline.begin("voice")
        packets += timeline.feed(piece)
        seams.append((end, start))
        end = timeline.samples
        packets += timeline.end_piece(pause)
    packets += timeline.finish()
    data = b"".join(packet.payload for packet in packets)
    return np.frombuffer(data, "<i2").astype(np.float32) / 32767, seams[1:]


def chosen(count: int) -> tuple[list[int], list[int]]:
    """Pieces in any order, and pauses of all kinds."""
    rng = np.random.default_rng(7)
    kinds = list(PAUSES.values())
    return rng.integers(0, len(PIECES), count).tolist(), rng.choice(kinds, count).tolist()


def worst(audio: Pcm, seams: list[tuple[int, int]]) -> list[float]:
    rough = roughness(audio)
    margin = 2 * FADE
    return [float(rough[max(0, end - margin) : start + margin].max()) for end, start in seams]


def test_no_seam_clicks_more_than_the_voice_itself() -> None:
    order, pauses = chosen(SEAMS + 1)
    found = []
    for start in range(0, SEAMS, 100):
        where = slice(start, start + 101)
        audio, seams = joined([PIECES[index] for index in order[where]], pauses[where])
        found += worst(audio, seams)
    assert len(found) == SEAMS
    assert max(found) <= OWN


def test_the_detector_hears_clicks() -> None:
    """Half a piece, cut off where it is loud, against silence: the naive seam."""
    heard = 0
    for piece in PIECES:
        middle = piece[piece.size // 3 : 2 * piece.size // 3]
        cut = piece.size // 3 + int(np.argmax(np.abs(middle)))
        naive = np.concatenate((piece[:cut], np.zeros(4800, np.float32)))
        heard += float(roughness(naive)[cut - 2 : cut + 2].max()) > OWN
    assert heard == len(PIECES)


@pytest.mark.parametrize("level", [0.004, 0.01])
def test_the_detector_hears_soft_steps_in_silence(level: float) -> None:
    step = np.concatenate((np.zeros(4800), np.full(4800, level))).astype(np.float32)
    assert roughness(step).max() > OWN


def test_what_breaks_off_rings_out() -> None:
    """A piece that fails where it is loudest bends about as much as the voice does."""
    broken = []
    for piece in PIECES:
        middle = piece[piece.size // 3 : 2 * piece.size // 3]
        cut = piece.size // 3 + int(np.argmax(np.abs(middle)))
        audio, seams = joined([piece[:cut], PIECES[0]], [PAUSES["sentence"]] * 2)
        broken += worst(audio, seams)
    assert max(broken) <= 1.2 * OWN


def test_fades_are_short_and_leave_the_rest() -> None:
    loud = tone(2 * FADE)
    assert np.array_equal(fade_in(loud, 1000)[FADE:], loud[FADE:])
    assert np.array_equal(fade_out(loud)[:FADE], loud[:FADE])
    assert abs(fade_in(loud, FADE)[0]) < AUDIBLE
    assert abs(fade_out(loud)[-1]) < AUDIBLE
    assert np.array_equal(fade_in(loud, 0), loud)
    assert fade_out(loud[:0]).size == 0


def test_a_ring_goes_on_from_the_last_sample_within_its_room() -> None:
    loud = tone(2 * FADE)
    rung = ring_out(loud, 1000)
    assert rung.size == FADE
    assert abs(rung[0] - loud[-1]) < 0.01
    assert abs(rung[-1]) < AUDIBLE
    assert ring_out(loud, 7).size == 7
    assert ring_out(np.zeros(9, np.float32), 1000).size == 0
    assert ring_out(loud[:0], 1000).size == 0
