from __future__ import annotations

import numpy as np
import opuslib

from bench.audible import SAMPLE_RATE, OnsetFinder, PcmOnsetFinder, first_audible


def test_onset_is_the_first_sample_above_the_threshold() -> None:
    pcm = np.zeros(1000, np.float32)
    pcm[100] = 0.003
    pcm[400] = -0.02
    assert first_audible(pcm) == 400
    assert first_audible(pcm, threshold_dbfs=-60) == 100
    assert first_audible(np.zeros(10, np.float32)) == -1
    assert first_audible(np.zeros(0, np.float32)) == -1


def test_finder_hears_speech_after_silence() -> None:
    frame = SAMPLE_RATE // 50
    encoder = opuslib.Encoder(SAMPLE_RATE, 1, opuslib.APPLICATION_AUDIO)
    tone = (8000 * np.sin(np.arange(frame) * 0.1)).astype(np.int16)
    silence = np.zeros(frame, np.int16)
    finder = OnsetFinder()
    heard = [
        finder.push(encoder.encode(pcm.tobytes(), frame), frame)
        for pcm in (silence,) * 5 + (tone,) * 3
    ]
    assert heard[:5] == [False] * 5
    assert heard[6:] == [True] * 2
    assert finder.onset is not None
    assert 5 * frame <= finder.onset < 6 * frame + frame // 2


def test_pcm_at_another_rate_is_found_at_the_place_it_would_have_here() -> None:
    finder = PcmOnsetFinder()
    quiet, loud = np.zeros(2205, "<i2"), np.full(2205, 9000, "<i2")
    assert not finder.push(quiet.tobytes(), 2400)
    assert finder.push(np.concatenate([quiet, loud]).tobytes(), 4800)
    assert finder.onset == 4800
