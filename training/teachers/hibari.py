"""hibari-tts (Apache-2.0): one English voice, distilled from Kokoro-82M's af_heart."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from hibari import Hibari, dsp

from training.teachers import Speech, symbol_edges

_DURATIONS = "/Clip_output_0"
"""Of every id, in equal steps; a value inside the published graph."""


class HibariTeacher:
    voices = ("heart",)
    languages = ("en",)

    def __init__(self) -> None:
        self._model = Hibari(threads=1)
        graph = onnx.load(self._model.model_path)
        graph.graph.output.append(onnx.ValueInfoProto(name=_DURATIONS))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> Speech:
        ids = self._model.ids(phonemes)
        if len(ids) < 3:
            return Speech(np.zeros(0, np.float32), [])
        given = {"ids": np.array([ids], np.int64), "speed": np.array([speed], np.float32)}
        *spectrum, durations = self._session.run(None, given)
        noise = np.random.default_rng(seed)
        wave = np.asarray(dsp.synth(*(part[0] for part in spectrum), noise), np.float32)
        edges = symbol_edges(phonemes, self._model.vocab, durations.ravel(), len(wave))
        return Speech(wave, edges)
