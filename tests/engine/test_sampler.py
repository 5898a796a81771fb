"""The sampler against a plain float64 reference, and what a stream may depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import (
    EXTRA_ARGS_KEY,
    Batch,
    ParamColumns,
    RequestParams,
    gather_batch,
)
from engine.checkpoints.base import CodeSampling
from engine.frames import FRAME_BASE, StoreShape
from engine.lm_config import LmConfig
from engine.noise import gumbel, mix, scramble, stream_keys
from engine.sampler import FrameSampler, candidates, penalise

Floats = npt.NDArray[np.float64]

CONFIG = LmConfig(
    family="mini",
    text_vocab=50,
    end_id=50,
    overrun_id=51,
    sampled_codebooks=(0, 2),
    fixed_codes={1: 312, 3: 311},
    text_head=True,
    text_end_id=49,
)
SHAPE = StoreShape(rows=256, codebooks=4, hidden_size=4)
END = CONFIG.end_code


# -- reference: the usual warpers, one row at a time, in float64 ----------------------------------


def reference_scores(
    logits: Floats, temperature: float, recent: list[int], penalty: float
) -> Floats:
    scores = logits.astype(np.float64) / temperature
    for code in set(recent):
        factor = penalty ** recent.count(code)
        scores[code] = scores[code] * factor if scores[code] < 0 else scores[code] / factor
    return scores


def reference_probabilities(scores: Floats, top_p: float, top_k: int) -> Floats:
    def softmax(x: Floats) -> Floats:
        e: Floats = np.exp(x - x[np.isfinite(x)].max())
        return np.asarray(e / e.sum())

    scores = scores.copy()
    ascending = np.argsort(scores, kind="stable")
    remove = np.cumsum(softmax(scores)[ascending]) <= 1 - top_p
    remove[-3:] = False
    scores[ascending[remove]] = -np.inf
    kth = np.sort(scores)[-min(max(top_k, 3), scores.size)]
    scores[scores < kth] = -np.inf
    return softmax(scores)


def probabilities(logits: torch.Tensor, top_p: float, top_k: int) -> Floats:
    """Dense probabilities (R, V) of what `candidates` keeps."""
    rows = len(logits)
    ids, logp = candidates(
        logits,
        torch.full((rows,), top_p),
        torch.full((rows,), top_k),
        max(3, top_k),
    )
    dense = torch.zeros(logits.shape).scatter(1, ids, torch.softmax(logp, 1))
    return dense.to(torch.float64).numpy()


# -- helpers ---------------------------------------------------------------------------------------


def batch_of(
    params: list[RequestParams],
    *,
    generated: list[int] | None = None,
    history: list[list[int]] | None = None,
) -> Batch:
    """A batch of requests with prompts of 40 positions.

    `history` are their own token ids; `generated` how many they have, where the ids do not matter.
    """
    rows, prompt = len(params), 40
    columns = ParamColumns(slots=rows)
    tokens = torch.full((rows, 400), 7, dtype=torch.int32)
    own = history or [[FRAME_BASE] * count for count in generated or [0] * rows]
    for row, (row_params, ids) in enumerate(zip(params, own, strict=True)):
        columns.put(row, row_params, prompt=prompt)
        tokens[row, prompt : prompt + len(ids)] = torch.tensor(ids)
    return gather_batch(
        torch.from_numpy(columns.integers),
        torch.from_numpy(columns.floats),
        tokens=tokens,
        rows=torch.arange(rows),
        total=torch.tensor([prompt + len(ids) for ids in own]),
        bounds=columns.bounds(slice(0, rows)),
    )


def serials(first: int, count: int) -> torch.Tensor:
    return torch.arange(first, first + count)


def new_sampler(**options: Any) -> tuple[FrameSampler, torch.Tensor]:
    ring = torch.zeros(SHAPE.rows, SHAPE.codebooks, dtype=torch.int16)
    return FrameSampler(CONFIG, ring, span=SHAPE.span, **options), ring


def logits_for(rows: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2 * CONFIG.code_vocab, generator=generator) * scale


WIDE = RequestParams(temperature=1.0, top_p=1.0, top_k=CONFIG.code_vocab)


# -- filters ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    temperature=st.floats(0.1, 2.0),
    penalty=st.floats(1.0, 2.0),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(1, 700),
    window=st.integers(0, 16),
)
def test_processed_probabilities_equal_the_reference(
    *, seed: int, temperature: float, penalty: float, top_p: float, top_k: int, window: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(3, 626)).astype(np.float32) * 3
    recent = rng.integers(0, 5, (3, window))
    scores = penalise(
        torch.from_numpy(logits) / temperature,
        torch.from_numpy(recent),
        torch.ones(3, window, dtype=torch.bool),
        torch.full((3,), penalty),
    )
    expected_scores = np.stack(
        [
            reference_scores(row, temperature, seen.tolist(), penalty)
            for row, seen in zip(logits, recent, strict=True)
        ]
    )
    np.testing.assert_allclose(scores.numpy(), expected_scores, rtol=2e-5, atol=1e-5)
    # The cut of top-p is a step function: compare from the same scores, and only where a float32
    # rounding cannot move the step.
    own = scores.numpy().astype(np.float64)
    got = probabilities(scores, top_p, top_k)
    for row in range(3):
        expected = reference_probabilities(own[row], top_p, top_k)
        nudged = [reference_probabilities(own[row], top_p + d, top_k) for d in (-1e-6, 1e-6)]
        if all(np.array_equal(n > 0, expected > 0) for n in nudged):
            np.testing.assert_allclose(got[row], expected, atol=1e-5)


def test_three_candidates_survive_the_tightest_filters() -> None:
    logits = torch.tensor([[5.0, 1.0, 0.5, 0.2, *[-3.0] * 40]])
    assert (probabilities(logits, 1e-6, 1) > 0).sum() == 3
    assert (probabilities(logits, 1e-6, 30) > 0).sum() == 3
    assert (probabilities(logits, 1.0, 1) > 0).sum() == 3
    assert (probabilities(logits, 1.0, 4) > 0).sum() == 4


def test_top_p_is_cut_on_the_whole_distribution_before_top_k() -> None:
    # 40 equal candidates: top-p 0.5 keeps 20 of them, although renormalising the top 20 first
    # would have made it keep 10.
    logits = torch.zeros(1, 40)
    assert (probabilities(logits, 0.5, 20) > 0).sum() == 20


def test_ties_at_a_cut_go_to_the_lower_id_whatever_the_neighbours_need() -> None:
    logits = torch.zeros(1, 626)
    ids_few, few = candidates(logits, torch.ones(1), torch.tensor([5]), 32)
    ids_many, many = candidates(logits, torch.ones(1), torch.tensor([5]), 626)
    assert ids_few[few > -torch.inf].tolist() == [0, 1, 2, 3, 4]
    assert ids_many[many > -torch.inf].tolist() == [0, 1, 2, 3, 4]


# -- noise -----------------------------------------------------------------------------------------


def test_mix_is_the_published_function() -> None:
    # splitmix64 with seed 1234567: the generator adds the golden constant, then mixes.
    golden = 0x9E3779B97F4A7C15
    state, outputs = 1234567, []
    for _ in range(5):
        state = (state + golden) % 2**64
        signed = (state + 2**63) % 2**64 - 2**63
        outputs.append(int(mix(torch.tensor([signed])).item()) % 2**64)
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_noise_is_gumbel_and_differs_by_seed_position_and_codebook() -> None:
    seeds = torch.tensor([scramble(seed) for seed in range(40)])[:, None].expand(40, 50).flatten()
    positions = torch.arange(50).repeat(40)
    keys = stream_keys(seeds, positions, 4).flatten()
    assert len(set(keys.tolist())) == 40 * 50 * 4
    noise = gumbel(keys, torch.arange(100).expand(len(keys), 100)).to(torch.float64)
    assert torch.isfinite(noise).all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.var().item() == pytest.approx(np.pi**2 / 6, abs=0.02)
    # Neighbouring keys and neighbouring candidates are uncorrelated.
    assert abs(np.corrcoef(noise[:-1].flatten(), noise[1:].flatten())[0, 1]) < 0.01
    assert abs(np.corrcoef(noise[:, :-1].flatten(), noise[:, 1:].flatten())[0, 1]) < 0.01


def test_draws_follow_the_distribution() -> None:
    sampler, ring = new_sampler()
    row = torch.full((1, 2 * 626), -torch.inf)
    weights = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
    row[0, :5] = row[0, 626:631] = weights.log()
    counts = np.zeros((2, 5))
    for seed in range(40):
        params = [WIDE._replace(seed=seed)] * 200
        batch = batch_of(params, generated=list(range(200)))
        sampler.step(row.expand(200, -1), batch, serials(0, 200))
        for stream, codebook in enumerate((0, 2)):
            counts[stream] += np.bincount(ring[:200, codebook].numpy(), minlength=5)[:5]
    expected = weights.numpy() * 8000
    chi_squared = ((counts - expected) ** 2 / expected).sum(1)
    # 4 degrees of freedom: 23.5 is the 99.99% quantile.
    assert (chi_squared < 23.5).all()


# -- one step --------------------------------------------------------------------------------------


def test_a_step_writes_the_ring_and_names_its_rows() -> None:
    hidden_ring = torch.zeros(64, 4, dtype=torch.float16)
    sampler, ring = new_sampler(hidden_ring=hidden_ring)
    serial = SHAPE.span + 255
    hidden = torch.arange(12.0).view(3, 4)
    ids = sampler.step(
        logits_for(3),
        batch_of([WIDE._replace(min_frames=9)] * 3),
        serials(serial, 3),
        hidden=hidden,
    )
    assert ids.tolist() == [FRAME_BASE + (serial + i) % SHAPE.span for i in range(3)]
    rows = [255, 0, 1]
    assert ring[rows, 1].tolist() == [312] * 3
    assert ring[rows, 3].tolist() == [311] * 3
    assert (ring[rows][:, [0, 2]] > 0).any()
    assert not ring[2:255].any()
    assert torch.equal(hidden_ring[[63, 0, 1]].float(), hidden)


@pytest.mark.parametrize("stream", [0, 1])
def test_either_sampled_codebook_ends_the_piece_but_not_before_the_minimum(stream: int) -> None:
    sampler, ring = new_sampler()
    logits = torch.zeros(2, 2 * 626)
    logits[:, stream * 626 + END] = 100
    params = [WIDE._replace(min_frames=4)] * 2
    ids = sampler.step(logits, batch_of(params, generated=[3, 4]), serials(0, 2))
    assert ids.tolist() == [FRAME_BASE, CONFIG.end_id]
    assert (ring < END).all()


def test_the_penalty_counts_a_codebooks_own_last_frames_only() -> None:
    sampler, ring = new_sampler()
    # Code 5 was drawn by codebook 0 three times in the window of four, and once before it;
    # codebook 2 drew 5 never.
    ring[:5] = torch.tensor([[5, 0, 9, 0], [5, 0, 9, 0], [6, 0, 9, 0], [5, 0, 9, 0], [5, 0, 9, 0]])
    history = [[FRAME_BASE + i for i in range(5)]]
    logits = torch.full((1, 2 * 626), -50.0)
    logits[0, [5, 7, 8, 626 + 5, 626 + 7, 626 + 8]] = torch.tensor([8.0, 1.5, 1.0, 8.0, 1.0, 1.0])
    # At this temperature scores are a hundredfold and no noise overturns them: 8 / 2**3 loses to
    # 1.5, where a count of two would have won.
    params = RequestParams(temperature=0.01, top_k=3, penalty=2.0, window=4)
    sampler.step(logits, batch_of([params], history=history), serials(100, 1))
    assert ring[100, [0, 2]].tolist() == [7, 5]
    # It wins against 0.75, where a count of four would have lost.
    logits[0, [7, 8]] = torch.tensor([0.75, 0.5])
    sampler.step(logits, batch_of([params], history=history), serials(101, 1))
    assert ring[101, 0] == 5


def test_negative_scores_are_multiplied() -> None:
    scores = torch.tensor([[-2.0, 2.0, -1.0]])
    out = penalise(
        scores,
        torch.tensor([[0, 1, 0, 2]]),
        torch.tensor([[True, True, True, False]]),
        torch.tensor([1.5]),
    )
    assert out.tolist() == [[pytest.approx(-4.5), pytest.approx(2 / 1.5), -1.0]]


def test_history_older_than_the_request_itself_is_not_penalised() -> None:
    sampler, ring = new_sampler()
    ring[:16] = 5
    logits = torch.full((1, 2 * 626), -50.0)
    logits[0, [5, 626 + 5]] = 8.0
    params = RequestParams(temperature=0.01, top_k=3, penalty=100.0, window=16)
    batch = batch_of([params], generated=[0])
    # Before its first frame, all that precedes is the prompt; here it ends in frames of its own.
    batch.history[:] = torch.arange(FRAME_BASE, FRAME_BASE + 16)
    sampler.step(logits, batch, serials(100, 1))
    assert ring[100, [0, 2]].tolist() == [5, 5]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_row_does_not_depend_on_its_neighbours(data: st.DataObject) -> None:
    def request() -> tuple[RequestParams, list[int], int]:
        params = RequestParams(
            seed=data.draw(st.integers(-(2**63), 2**63 - 1)),
            temperature=data.draw(st.floats(0.125, 2.0, width=32)),
            top_p=data.draw(st.floats(0.0625, 1.0, width=32)),
            top_k=data.draw(st.integers(1, 626)),
            penalty=data.draw(st.sampled_from([1.0, 1.05, 1.5])),
            window=data.draw(st.integers(0, 16)),
            min_frames=data.draw(st.integers(0, 30)),
            text=data.draw(st.booleans()),
        )
        past = data.draw(st.integers(0, 30))
        # Coarse logits make ties common.
        return params, [FRAME_BASE + data.draw(st.integers(0, 99)) for _ in range(past)], past

    requests = [request() for _ in range(data.draw(st.integers(2, 6)))]
    seed = data.draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(requests), 1252, generator=generator) * 4).round()
    text_logits = (torch.randn(len(requests), 50, generator=generator) * 4).round()
    past_codes = torch.randint(0, 625, (100, 4), generator=generator).to(torch.int16)

    def run(rows: list[int]) -> list[tuple[int, list[int]]]:
        sampler, ring = new_sampler()
        ring[:100] = past_codes
        ids = sampler.step(
            logits[rows],
            batch_of([requests[r][0] for r in rows], history=[requests[r][1] for r in rows]),
            serials(128, len(rows)),
            text_logits=text_logits[rows],
        )
        kinds = [i if i < FRAME_BASE else FRAME_BASE for i in ids.tolist()]
        return list(zip(kinds, ring[128 : 128 + len(rows)].tolist(), strict=True))

    together = run(list(range(len(requests))))
    reordered = run(list(range(len(requests)))[::-1])[::-1]
    alone = [run([row])[0] for row in range(len(requests))]
    assert together == alone == reordered


@pytest.mark.parametrize("from_prompt", [True, False])
def test_a_request_whose_oldest_frame_is_about_to_go_ends_alone(from_prompt: bool) -> None:
    sampler, _ = new_sampler()
    first = 1000
    # Three rows are written in this step: of frames older than that, rows - 3 are still there.
    oldest = [FRAME_BASE + first + 3 - SHAPE.rows, FRAME_BASE + first + 2 - SHAPE.rows]
    params = WIDE._replace(min_frames=9)
    if from_prompt:
        requests = [params._replace(oldest=id_) for id_ in oldest]
        batch = batch_of([*requests, params])
    else:
        history = [[id_, FRAME_BASE + first - 5, FRAME_BASE + first - 2] for id_ in oldest]
        batch = batch_of([params] * 3, history=[*history, []])
    ids = sampler.step(logits_for(3), batch, serials(first, 3))
    assert ids.tolist() == [FRAME_BASE + first, CONFIG.overrun_id, FRAME_BASE + first + 2]


def test_repeating_the_last_row_changes_nothing() -> None:
    # How a batch is padded to a fixed size.
    sampler, ring = new_sampler()
    params = [WIDE._replace(seed=seed, min_frames=9) for seed in range(3)]
    ids = sampler.step(logits_for(3), batch_of(params), serials(0, 3))
    drawn = ring[:3].clone()
    padded = sampler.step(
        logits_for(3)[[0, 1, 2, 2, 2]],
        batch_of([*params, params[2], params[2]]),
        torch.tensor([0, 1, 2, 2, 2]),
    )
    assert padded.tolist() == [*ids.tolist(), ids[2], ids[2]]
    assert torch.equal(ring[:3], drawn)
    assert not ring[3:].any()


def test_text_mode_draws_from_the_text_head_with_its_own_end() -> None:
    sampler, _ = new_sampler()
    text = WIDE._replace(text=True, top_k=3, min_frames=2)
    text_logits = torch.full((4, 50), -10.0)
    text_logits[:, 17] = 50
    text_logits[2:, CONFIG.text_end_id] = 100
    batch = batch_of([text, WIDE._replace(min_frames=9), text, text], generated=[0, 0, 1, 2])
    ids = sampler.step(logits_for(4), batch, serials(0, 4), text_logits=text_logits)
    assert ids.tolist() == [17, FRAME_BASE + 1, 17, CONFIG.end_id]


def test_text_mode_penalises_its_own_ids() -> None:
    sampler, _ = new_sampler()
    text = RequestParams(text=True, temperature=0.01, top_k=3, penalty=2.0, window=16)
    text_logits = torch.full((1, 50), -1.0)
    text_logits[0, [17, 18, 19]] = torch.tensor([0.04, 0.03, 0.001])
    batch = batch_of([text], history=[[17]])
    ids = sampler.step(logits_for(1), batch, serials(0, 1), text_logits=text_logits)
    assert ids.tolist() == [18]


# -- parameters in transit -------------------------------------------------------------------------


def test_parameters_survive_the_way_to_the_engine() -> None:
    sampling = CodeSampling(
        temperature=0.3,
        top_p=0.7,
        top_k=20,
        repetition_penalty=1.05,
        repetition_window=16,
        min_frames=2,
        max_frames=100,
        seed=2**64 - 1,
        mode="text",
    )
    params = RequestParams.of(sampling, FRAME_BASE + 3)
    assert RequestParams.from_extra_args({EXTRA_ARGS_KEY: list(params)}) == params
    columns = ParamColumns(slots=3)
    columns.put(1, params, prompt=9)
    batch = gather_batch(
        torch.from_numpy(columns.integers)[:, [1]],
        torch.from_numpy(columns.floats)[:, [1]],
        tokens=torch.zeros(3, 20, dtype=torch.int32),
        rows=torch.tensor([1]),
        total=torch.tensor([12]),
        bounds=columns.bounds([1]),
    )
    assert batch.oldest.tolist() == [FRAME_BASE + 3]
    assert batch.generated.tolist() == [3]
    assert batch.seed.tolist() == [params.seed]
    assert batch.top_p.tolist() == [pytest.approx(0.7)]
    assert columns.bounds([0, 1]) == (20, 16, True)
    assert columns.bounds([0, 2]) == (1, 0, False)


def test_seeds_of_any_size_are_spread() -> None:
    spread = [scramble(seed) for seed in (0, 1, 2, -1, 2**63, 2**64 - 1, 10**30)]
    assert len(set(spread)) == 6  # -1 and 2**64 - 1 are the same 64 bits
    assert all(-(2**63) <= value < 2**63 for value in spread)


def test_no_penalty_needs_no_window() -> None:
    sampling = CodeSampling(0.3, 0.7, 20, 1.0, 16, 2, 100, 0)
    assert RequestParams.of(sampling, 0).window == 0
    assert RequestParams.of(dataclasses.replace(sampling, repetition_penalty=1.1), 0).window == 16


def test_requests_that_are_not_ours_get_the_defaults() -> None:
    assert RequestParams.from_extra_args(None) == RequestParams()
    assert RequestParams.from_extra_args({"other": 1}) == RequestParams()
