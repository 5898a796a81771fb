"""The decode loop: order, batching, urgency, cancelling, stopping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from bench.codec_random import random_codes
from engine.codec.config import CodecError
from engine.codec.model import Codec
from engine.codec.service import DRY, NO_HURRY, DecodeService
from engine.codec.streaming import Push, StreamingDecoder, StreamState

CODES = random_codes(60, 3, 105, 11)


class Watched(StreamingDecoder):
    """The real decoder; remembers its batches and can be held up."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec)
        self.batches: list[list[Push]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def push(self, batch: Sequence[Push]) -> list[Any]:
        self.batches.append(list(batch))
        self.entered.set()
        self.gate.wait(30)
        return super().push(batch)


async def occupy(service: DecodeService, decoder: Watched) -> asyncio.Task[Any]:
    """Keep the worker busy with a stream of its own until the gate opens."""
    decoder.gate.clear()
    decoder.batches.clear()
    decoder.entered.clear()
    task = asyncio.create_task(service.decode(service.open(), CODES[:4], False))
    await asyncio.to_thread(decoder.entered.wait, 30)
    return task


async def enqueue(
    service: DecodeService, *calls: Coroutine[Any, Any, Any]
) -> list[asyncio.Task[Any]]:
    """Tasks of calls that wait for the worker."""
    before = service.pending
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    assert service.pending == before + len(calls)
    return tasks


@pytest.fixture
async def service(small_causal_codec: Codec) -> AsyncIterator[DecodeService]:
    service = DecodeService(small_causal_codec)
    service.start()
    yield service
    await service.close()


@pytest.fixture
async def watched(small_causal_codec: Codec) -> AsyncIterator[tuple[DecodeService, Watched]]:
    decoder = Watched(small_causal_codec)
    service = DecodeService(small_causal_codec, decoder=decoder)
    service.start()
    await service.decode(service.open(), CODES[:4], True)
    decoder.batches.clear()
    yield service, decoder
    await service.close()


async def speak(service: DecodeService, chunk: int) -> np.ndarray:
    state = service.open()
    parts = [
        await service.decode(state, CODES[at : at + chunk], at + chunk >= len(CODES))
        for at in range(0, len(CODES), chunk)
    ]
    return np.concatenate(parts)


async def test_many_streams_at_once_each_get_their_own(
    service: DecodeService, small_causal_codec: Codec
) -> None:
    offline = small_causal_codec.decode(CODES)
    spoken = await asyncio.gather(*(speak(service, chunk) for chunk in (1, 2, 3, 5, 8, 13, 60)))
    for pcm in spoken:
        np.testing.assert_allclose(pcm, offline, atol=1e-5, rtol=0)


async def test_calls_of_one_stream_keep_their_order(
    service: DecodeService, small_causal_codec: Codec
) -> None:
    state = service.open()
    calls = [
        service.decode(state, CODES[at : at + 6], at == 54, due=DRY if at % 12 == 0 else NO_HURRY)
        for at in range(0, 60, 6)
    ]
    pcm = np.concatenate(await asyncio.gather(*calls))
    np.testing.assert_allclose(pcm, small_causal_codec.decode(CODES), atol=1e-5, rtol=0)


async def test_what_waits_decodes_in_one_batch(watched: tuple[DecodeService, Watched]) -> None:
    service, decoder = watched
    first = await occupy(service, decoder)
    calls = (service.decode(service.open(), CODES[:n], False) for n in (3, 4, 5, 6))
    rest = await enqueue(service, *calls)
    decoder.gate.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in decoder.batches] == [1, 4]


async def test_dry_streams_go_first_and_alone(watched: tuple[DecodeService, Watched]) -> None:
    service, decoder = watched
    first = await occupy(service, decoder)
    patient = (service.decode(service.open(), CODES[:8], False) for _ in range(3))
    dry = service.decode(service.open(), CODES[:2], False, due=DRY)
    rest = await enqueue(service, *patient, dry)
    decoder.gate.set()
    await asyncio.gather(first, *rest)
    assert [[len(push[1]) for push in batch] for batch in decoder.batches] == [[4], [2], [8, 8, 8]]


async def test_a_batch_is_bounded_and_the_earliest_due_go_first(
    watched: tuple[DecodeService, Watched],
) -> None:
    service, decoder = watched
    first = await occupy(service, decoder)
    calls = (service.decode(service.open(), CODES[:n], False, due=100.0 - n) for n in (40, 50, 60))
    rest = await enqueue(service, *calls)
    decoder.gate.set()
    await asyncio.gather(first, *rest)
    assert [[len(push[1]) for push in batch] for batch in decoder.batches] == [[4], [60], [50, 40]]


async def test_the_event_loop_runs_while_the_worker_decodes(
    watched: tuple[DecodeService, Watched],
) -> None:
    service, decoder = watched
    decoding = await occupy(service, decoder)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not decoding.done()
    decoder.gate.set()
    await decoding


async def test_a_cancelled_call_is_never_decoded(watched: tuple[DecodeService, Watched]) -> None:
    service, decoder = watched
    first = await occupy(service, decoder)
    state, other = service.open(), service.open()
    cancelled, follower, kept = await enqueue(
        service,
        service.decode(state, CODES[:9], False),
        service.decode(state, CODES[9:12], False),
        service.decode(other, CODES[:5], False),
    )
    cancelled.cancel()
    await asyncio.sleep(0)
    decoder.gate.set()
    await asyncio.gather(first, kept)
    for task in (cancelled, follower):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [[push[0] for push in batch] for batch in decoder.batches[1:]] == [[other]]
    with pytest.raises(CodecError) as caught:
        await service.decode(state, CODES[:3], False)
    assert caught.value.code == "finished_stream"


async def test_dropping_a_stream_that_is_being_decoded_harms_no_one(
    watched: tuple[DecodeService, Watched], small_causal_codec: Codec
) -> None:
    service, decoder = watched
    dropped, kept = service.open(), service.open()
    decoder.gate.clear()
    decoder.entered.clear()
    of_dropped, of_kept = (
        asyncio.create_task(service.decode(state, CODES[:20], False)) for state in (dropped, kept)
    )
    await asyncio.to_thread(decoder.entered.wait, 30)
    service.drop(dropped)
    decoder.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await of_dropped
    pcm = [await of_kept, await service.decode(kept, CODES[20:], True)]
    np.testing.assert_allclose(
        np.concatenate(pcm), small_causal_codec.decode(CODES), atol=1e-5, rtol=0
    )


async def test_one_bad_call_fails_alone(
    watched: tuple[DecodeService, Watched], small_causal_codec: Codec
) -> None:
    service, decoder = watched
    finished = service.open()
    await service.decode(finished, CODES[:4], True)
    first = await occupy(service, decoder)
    good = (service.decode(service.open(), CODES, True) for _ in range(2))
    rest = await enqueue(service, *good, service.decode(finished, CODES[:4], False))
    decoder.gate.set()
    results = await asyncio.gather(first, *rest, return_exceptions=True)
    assert isinstance(results[3], CodecError)
    for pcm in results[1:3]:
        np.testing.assert_allclose(pcm, small_causal_codec.decode(CODES), atol=1e-5, rtol=0)
    with pytest.raises(CodecError) as caught:
        await service.decode(service.open(), CODES.astype(np.float32), False)
    assert caught.value.code == "bad_frames"


async def test_a_decoder_that_breaks_fails_its_batch_and_goes_on(service: DecodeService) -> None:
    state = service.open()
    await service.decode(state, CODES[:4], False)
    assert state.context is not None
    state.context = state.context[:10]
    with pytest.raises(RuntimeError):
        await service.decode(state, CODES[4:8], False)
    with pytest.raises(CodecError, match="after the last"):
        await service.decode(state, CODES[8:9], False)
    assert len(await service.decode(service.open(), CODES[:4], True)) == 4 * 512


async def test_a_codec_that_cannot_warm_up_tells_its_callers(
    small_causal_codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Codec(small_causal_codec.config, encodes=False)
    broken.load_state_dict(small_causal_codec.state_dict(), strict=False)
    broken.folded()
    broken.vocoder.head.weight = torch.nn.Parameter(torch.zeros(3, 3), requires_grad=False)
    service = DecodeService(broken)
    service.start()
    with pytest.raises(RuntimeError):
        await service.decode(service.open(), CODES[:4], True)
    assert "warm up" in caplog.text
    await service.close()


async def test_stopping_answers_everyone(small_causal_codec: Codec) -> None:
    decoder = Watched(small_causal_codec)
    service = DecodeService(small_causal_codec, decoder=decoder)
    state = service.open()
    with pytest.raises(CodecError) as caught:
        await service.decode(state, CODES[:4], False)
    assert caught.value.code == "stopped"
    service.start()
    await service.decode(service.open(), CODES[:4], True)
    running = await occupy(service, decoder)
    calls = (service.decode(service.open(), CODES[:4], False) for _ in range(3))
    waiting = await enqueue(service, *calls)
    closing = asyncio.create_task(service.close())
    await asyncio.sleep(0)
    decoder.gate.set()
    await closing
    results = await asyncio.gather(running, *waiting, return_exceptions=True)
    assert isinstance(results[0], np.ndarray)
    for result in results[1:]:
        assert isinstance(result, CodecError)
        assert result.code == "stopped"
    await service.close()


async def test_states_are_forgotten(service: DecodeService) -> None:
    """Nothing in the service holds on to a stream that its owner let go."""
    import gc
    import weakref

    class Marked(StreamState):
        __slots__ = ("__weakref__",)

    state = Marked()
    gone = weakref.ref(state)
    await service.decode(state, CODES[:5], False)
    del state
    await service.decode(service.open(), CODES[:1], True)
    gc.collect()
    assert gone() is None
