"""The parts of the V2 adapter that need no GPU: padding, columns by slot, mirroring."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.batch import Bounds, ParamColumns, RequestParams
from engine.frames import FRAME_BASE, FrameStore, StoreShape
from engine.lm_config import LmConfig
from engine.runners.v2 import CapturedStep, DeviceState, Mirror, V2Sampler, ladder
from engine.sampler import FrameSampler

CONFIG = LmConfig(
    family="mini",
    text_vocab=50,
    end_id=50,
    overrun_id=51,
    sampled_codebooks=(0, 2),
    fixed_codes={1: 312, 3: 312},
)
SLOTS, PROMPT = 6, 5


@pytest.fixture
def store() -> Iterator[FrameStore]:
    shape = StoreShape(rows=64, codebooks=4, hidden_size=8, hidden_rows=32, hidden_bytes=4)
    store = FrameStore.create(shape)
    yield store
    store.close()


def params(slot: int) -> RequestParams:
    return RequestParams(seed=slot * 977, top_k=20, min_frames=99, penalty=1.5, window=16)


def tokens() -> torch.Tensor:
    """Token ids by slot: a prompt, then as many frames as the slot's number."""
    ids = torch.full((SLOTS, 30), 7, dtype=torch.int32)
    for slot in range(SLOTS):
        ids[slot, PROMPT : PROMPT + slot] = FRAME_BASE + torch.arange(slot)
    return ids


def test_a_padded_step_draws_what_the_sampler_of_the_runner_draws(store: FrameStore) -> None:
    ring = torch.randint(0, 625, (64, 4), dtype=torch.int16)
    totals = PROMPT + torch.arange(SLOTS, dtype=torch.int32)
    hidden = torch.randn(3, 8)
    logits = torch.randn(3, 2 * 626)
    slots = torch.tensor([4, 1, 5], dtype=torch.int32)

    tables = SimpleNamespace(store=store, ring=ring.clone())
    model = SimpleNamespace(tables=tables, lm_config=CONFIG, sampled_hidden=hidden)
    req_states = SimpleNamespace(
        max_num_reqs=SLOTS,
        all_token_ids=SimpleNamespace(gpu=tokens()),
        total_len=SimpleNamespace(gpu=totals),
    )
    sampler = V2Sampler(model, req_states)  # type: ignore[arg-type]
    columns = ParamColumns(slots=SLOTS)
    for slot in range(SLOTS):
        extra = {"voxgate": list(params(slot))}
        sampler.add_request(slot, PROMPT, SimpleNamespace(extra_args=extra))
        columns.put(slot, params(slot), prompt=PROMPT)
    # On a GPU `apply_staged_writes` copies these through pinned memory.
    sampler._state.integers.copy_(torch.from_numpy(columns.integers))
    sampler._state.floats.copy_(torch.from_numpy(columns.floats))
    bounds = columns.bounds(slots.numpy())
    assert bounds == Bounds(top_k=20, window=16, any_text=False)
    expected = sampler._eager(logits, slots, 40, bounds)

    own_ring, own_hidden = ring.clone(), torch.zeros(32, 8)
    state = DeviceState(
        integers=torch.from_numpy(columns.integers),
        floats=torch.from_numpy(columns.floats),
        tokens=tokens(),
        total=totals,
    )
    step = CapturedStep(
        FrameSampler(CONFIG, own_ring, span=store.shape.span, hidden_ring=own_hidden),
        state,
        Bounds(top_k=32, window=16, any_text=False),
        logits=torch.zeros(8, 2 * 626),
        hidden=torch.zeros(8, 8),
        first=0,
    )
    # What an earlier, larger batch left in the buffers must not matter.
    step.load(torch.randn(8, 2 * 626), torch.randn(8, 8), torch.arange(8) % SLOTS, 10)
    step.load(logits, hidden, slots, 40)
    assert step.step()[:3].tolist() == expected.tolist() == [FRAME_BASE + 40 + i for i in range(3)]
    assert torch.equal(own_ring, tables.ring)
    assert torch.equal(own_hidden[8:11], hidden)
    assert not own_hidden[11:].any()


@pytest.mark.parametrize(("first", "count"), [(0, 5), (60, 10), (64 * 7 + 30, 64), (63, 1)])
def test_the_mirror_holds_the_rows_of_a_step_and_no_others(
    store: FrameStore, first: int, count: int
) -> None:
    ring = torch.arange(64 * 4, dtype=torch.int16).view(64, 4)
    hidden = torch.arange(32 * 8, dtype=torch.float32).view(32, 8)
    store.codes[:] = -1
    store.hidden[:] = -1
    Mirror(store, ring, hidden).copy(first, min(count, 32))
    serials = np.arange(first, first + min(count, 32))
    rows = serials % 64
    assert np.array_equal(store.codes[rows], ring.numpy()[rows])
    assert (np.delete(store.codes, rows, axis=0) == -1).all()
    rows = serials % 32
    assert np.array_equal(store.hidden[rows], hidden.numpy()[rows])
    assert (np.delete(store.hidden, rows, axis=0) == -1).all()


@pytest.mark.parametrize("most", [1, 2, 3, 5, 64, 100, 1024])
def test_the_ladder_reaches_every_batch_size_with_little_waste(most: int) -> None:
    sizes = ladder(most)
    assert sizes[-1] == most
    for size in range(1, most + 1):
        chosen = next(s for s in sizes if s >= size)
        assert chosen <= max(1.5 * size, size + 1)
