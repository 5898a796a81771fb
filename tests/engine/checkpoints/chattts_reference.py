"""Golden files of the reference package and the inputs they were made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = Path(__file__).parent / "golden"
SEED = 20
FRAMES = 200
TEXT_STEPS = 48
LOGIT_STEPS = (0, 1, 2, 50, 199)
TEXT_LOGIT_STEPS = (0, 1, 40)
TEXT_LOGIT_STRIDE = 7
TEXTS = {
    "english": "hello there, how are you today [uv_break] fine [laugh]",
    "mandarin": "你好，今天天气很好。[lbreak]",
    "mixed": "我们用 vllm 跑 chattts，very fast。",
}
REFERENCE_TEXT = "this is the reference 参考文本。"
REFINE_PROMPT = "[oral_2][laugh_0][break_6]"
SAMPLING_CASES = [
    {"temperature": 0.3, "top_p": 0.7, "top_k": 20, "repetition_penalty": 1.05},
    {"temperature": 0.3, "top_p": 0.7, "top_k": 20, "repetition_penalty": 1.0},
    {"temperature": 0.5, "top_p": 0.99, "top_k": 50, "repetition_penalty": 1.3},
    {"temperature": 0.3, "top_p": 0.3, "top_k": 20, "repetition_penalty": 1.05},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 1, "repetition_penalty": 1.05},
    {"temperature": 0.01, "top_p": 0.7, "top_k": 20, "repetition_penalty": 1.05},
]


def speaker_statistics(hidden: int) -> npt.NDArray[np.float16]:
    return np.random.default_rng(6).random(2 * hidden).astype(np.float16)


def speaker_vector(hidden: int, seed: int = 7) -> npt.NDArray[np.float16]:
    return np.random.default_rng(seed).standard_normal(hidden).astype(np.float16)


def reference_codes() -> npt.NDArray[np.int16]:
    return np.random.default_rng(8).integers(0, 625, (40, 4)).astype(np.int16)


def sampling_inputs(case: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Logits (4, 626) and the codes drawn so far (4, 24), often repeating."""
    rng = np.random.default_rng([9, case])
    logits = rng.standard_normal((4, 626)).astype(np.float32)
    favourites = np.argsort(-logits, axis=1)[:, :6]
    history = np.take_along_axis(favourites, rng.integers(0, 6, (4, 24)), axis=1)
    return logits, history


def arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    with np.load(GOLDEN / f"{name}.npz") as stored:
        return dict(stored)


def texts() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / "texts.json").read_text(encoding="utf-8"))
    return loaded
