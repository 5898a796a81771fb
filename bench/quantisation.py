"""The embedded voice in more and fewer bits: size, speed, memory, and what becomes of the speech.

    python -m bench.quantisation --json docs/benchmarks/quantisation-cpu.json
    python -m bench.quantisation --json docs/benchmarks/quantisation-cpu.json --judge 50

Agreement is teacher-forced: at places of utterances that float32 spoke, each variant says which
frame is likeliest next, and its codes are compared with float32's. `--judge N` speaks N sentences
with each and adds the recogniser's word error and DNSMOS. A variant that vLLM refuses on this
machine is noted as such. On a GPU: `python -m bench.gpu_slice --parts quantisation`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from bench import machine, variants
from bench.engine_runs import CHATTTS, generate_frames
from bench.gateway_process import GatewayError
from bench.stats import rounded, summary
from bench.texts import sentences
from bench.tuned import Tuning

VARIANTS = {
    "float32": Tuning(engine={"dtype": "float32", "quantization": "none"}),
    "bfloat16": Tuning(engine={"quantization": "none"}),
    "int8 weights": Tuning(engine={"quantization": "int8"}),
    "int4 weights": Tuning(engine={"quantization": "int4"}),
    "fp8 weights": Tuning(engine={"quantization": "fp8"}),
    "int8 weights, fp8 KV cache": Tuning(
        engine={"quantization": "int8"}, vllm={"kv_cache_dtype": "fp8_e5m2"}
    ),
}
GPTQ_VOICE = Path(__file__).parent / "out" / "int4-voice"
"""Made by `python -m bench.gptq engine/voices/mini bench/out/int4-voice`."""
if GPTQ_VOICE.is_dir():
    VARIANTS["int4 weights by GPTQ"] = Tuning(
        engine={"quantization": "int4", "checkpoint": str(GPTQ_VOICE)}
    )
_BITS = {"none": None, "int8": 8, "fp8": 8, "int4": 4}
_PLACES = 12
"""Frames between two places that are compared."""
_SPOKEN = Path(__file__).parent / "out" / "quantisation"
"""What float32 said, for all others."""
_FORCED = replace(CHATTTS, temperature=1.0, top_p=1.0, top_k=1, repetition_penalty=1.0)


def settings_for(tuning: Tuning) -> Any:
    from engine.settings import EngineSettings

    given = dict(tuning.engine)
    if "checkpoint" in given:
        given["checkpoint"] = Path(given["checkpoint"])
    return EngineSettings(**given, vllm=tuning.vllm)


def weight_mb(quantization: str, dtype: str) -> float:
    """Megabytes of the embedded voice's language model in memory, scales left out."""
    from safetensors import safe_open

    import engine.voices
    from engine.quantization import is_linear

    path = Path(engine.voices.__file__).parent / "mini" / "lm" / "model.safetensors"
    bits, width = _BITS[quantization], 32 if dtype == "float32" else 16
    total = 0
    with safe_open(path, "numpy") as file:
        for name in file.keys():  # noqa: SIM118  (safe_open is no mapping)
            count = int(np.prod(file.get_slice(name).get_shape()))
            total += count * (bits if bits and is_linear(name) else width)
    return rounded(total / 8e6)


async def speed_and_agreement(tuning: Tuning, texts: int) -> dict[str, Any]:
    """One variant in this process; the first one of all has to be float32."""
    from engine.checkpoints import load_checkpoint
    from engine.language_model import LanguageModel
    from engine.lm_config import LmConfig
    from engine.machine import language_model_settings, resolve_device

    settings = settings_for(tuning)
    checkpoint = load_checkpoint(settings)
    model_dir = checkpoint.model_dir()
    lm_settings = language_model_settings(settings, resolve_device("auto"), model_dir)
    given = json.loads((model_dir / "config.json").read_text())
    config = LmConfig.from_dict(given["voxgate"], vocab_size=given["vocab_size"])
    text_ids = config.text_vocab
    lm = LanguageModel(lm_settings)
    await lm.start()
    try:
        checkpoint.register(lm)
        speed = {}
        for streams in (1, 16):
            prompts: Any = {"prompt": 40, "text_ids": text_ids, "rng": random.Random(0)}
            await generate_frames(lm, streams, 20, **prompts)
            rates = [
                (await generate_frames(lm, streams, 100, **prompts)).frames_per_second
                for _ in range(3)
            ]
            speed[str(streams)] = summary(rates)
        memory = machine.usage(os.getpid()).memory_bytes
        agreement = await _agreement(checkpoint, lm, texts, config.sampled_codebooks)
    finally:
        await lm.close()
    return {
        "frames_per_second": speed,
        "memory_mib": rounded(memory / 2**20),
        "weights_mb": weight_mb(lm_settings.quantization, lm_settings.dtype),
        "agreement": agreement,
    }


async def _agreement(
    checkpoint: Any, lm: Any, texts: int, sampled: Sequence[int]
) -> dict[str, Any]:
    from engine.api import SpeechRequest

    source = sentences("both", random.Random(3))
    wanted = [next(source) for _ in range(texts)]
    plans = [checkpoint.plan(SpeechRequest(text=text, seed=1)) for text in wanted]
    _SPOKEN.mkdir(parents=True, exist_ok=True)
    said = _SPOKEN / f"{texts}.npz"
    is_first = not said.is_file()
    if is_first:
        pieces = await asyncio.gather(*(_speak(lm, plan) for plan in plans))
    else:
        kept = np.load(said)
        pieces = [kept[f"codes{number}"] for number in range(texts)]
    likeliest = []
    for plan, codes in zip(plans, pieces, strict=True):
        ids = lm.register_frames(codes)
        likeliest.append(
            np.stack(
                await asyncio.gather(
                    *(
                        _next_frame(lm, [*plan.prompt, *ids[:at]])
                        for at in range(4, len(ids), _PLACES)
                    )
                )
            )
        )
    if is_first:
        arrays = {f"codes{number}": codes for number, codes in enumerate(pieces)}
        arrays |= {f"likeliest{number}": codes for number, codes in enumerate(likeliest)}
        np.savez(said, **arrays)
    kept = np.load(said)
    same = np.concatenate(
        [mine == kept[f"likeliest{number}"] for number, mine in enumerate(likeliest)]
    )[:, list(sampled)]
    return {
        "codes": rounded(float(same.mean())),
        "frames": rounded(float(same.all(1).mean())),
        "by_codebook": [rounded(float(share)) for share in same.mean(0)],
        "places": len(same),
    }


async def _speak(lm: Any, plan: Any) -> Any:
    batches = [batch.codes async for batch in lm.generate(plan.prompt, plan.sampling)]
    return np.concatenate(batches)


async def _next_frame(lm: Any, prompt: list[int]) -> Any:
    sampling = replace(_FORCED, min_frames=1, max_frames=1)
    async with aclosing(lm.generate(prompt, sampling)) as batches:
        return np.concatenate([batch.codes async for batch in batches])[0]


async def judged(tuning: Tuning, count: int) -> dict[str, Any]:
    """Word error and DNSMOS of sentences spoken by one variant."""
    import jiwer

    from engine.api import SpeechRequest
    from engine.synthesizer import create
    from training.judges import EnglishListener, quality

    source = sentences("en", random.Random(11))
    wanted = [next(source) for _ in range(count)]
    synthesizer = create(settings_for(tuning))
    await synthesizer.start()
    spoken = []
    try:
        for number, text in enumerate(wanted):
            request = SpeechRequest(text=text, language="en", seed=number)
            async with aclosing(synthesizer.speak(request)) as chunks:
                spoken.append(np.concatenate([chunk.pcm async for chunk in chunks]))
    finally:
        await synthesizer.close()
    listener = EnglishListener()
    heard = [_plain(listener.heard(pcm)) for pcm in spoken]
    return {
        "word_error": rounded(jiwer.wer([_plain(text) for text in wanted], heard)),
        "dnsmos": rounded(float(np.mean([quality(pcm).overall for pcm in spoken]))),
        "sentences": count,
    }


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


async def measure(name: str, _tuning: Tuning, options: argparse.Namespace) -> dict[str, Any]:
    """One variant in a process of its own. Raises `GatewayError` with what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "result.json"
        command = [sys.executable, "-m", "bench.quantisation", "--one", name]
        command += ["--texts", str(options.texts), "--json", str(target)]
        command += ["--judge", str(options.judge)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate()
        if not target.is_file():
            lines = [line for line in errors.decode().splitlines() if "Error" in line]
            raise GatewayError("\n".join(lines[-4:]) or errors.decode()[-1500:])
        found: dict[str, Any] = json.loads(target.read_text())
        return found


def judge(options: argparse.Namespace) -> int:
    """Adds what the judges say to a result, variant by variant."""
    for name in options.only or VARIANTS:
        result = json.loads(options.json.read_text())
        if name in result["errors"] or name in result.get("judged", {}):
            continue
        found = asyncio.run(measure(name, VARIANTS[name], options))
        print(name, found, flush=True)
        variants.note(options.json, "judged", name, found)
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = variants.parser("bench.quantisation", __doc__ or "")
    arguments.set_defaults(rounds=1)
    arguments.add_argument("--texts", type=int, default=24, help="utterances for the agreement")
    arguments.add_argument("--judge", type=int, default=0, help="sentences for the judges")
    arguments.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    return arguments


def main() -> int:
    options = parser().parse_args()
    if options.one is not None:
        tuning = VARIANTS[options.one]
        work = (
            judged(tuning, options.judge)
            if options.judge
            else speed_and_agreement(tuning, options.texts)
        )
        options.json.write_text(json.dumps(uvloop.run(work)))
        return 0
    if options.judge:
        return judge(options)
    return variants.compare("quantisation", VARIANTS, options, measure, texts=options.texts)


if __name__ == "__main__":
    sys.exit(main())
