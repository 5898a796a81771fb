"""How voice gateways are known to fail, and which test shows that this one does not.

A test that is renamed or deleted is missed here; see also `test_field_failures.py`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

FIELD = "gateway/test_field_failures.py"
PROOFS = {
    # -- cutting --
    "A number, a price or a decimal comma is cut inside": [
        f"{FIELD}::TestCutting::test_nothing_is_cut_inside",
        "gateway/test_cutting.py::test_cases",
    ],
    "A title, a.m. or e.g. ends the sentence, or an abbreviation after a quote does": [
        f"{FIELD}::TestCutting::test_nothing_is_cut_inside",
    ],
    "An address, a domain or a file name is cut inside": [
        f"{FIELD}::TestCutting::test_nothing_is_cut_inside",
    ],
    "Mandarin is never cut, or inside a word": [
        f"{FIELD}::TestCutting::test_mandarin_is_cut_at_its_own_marks",
        "gateway/test_cutting.py::test_forced_cuts",
    ],
    "A closing quote or bracket is left to the next piece": [
        f"{FIELD}::TestCutting::test_quotes_and_brackets_stay_with_their_sentence",
    ],
    "An ellipsis becomes a request; marks alone hang the turn or abort it": [
        f"{FIELD}::TestCutting::test_marks_alone_are_no_request_and_do_not_hang",
        "gateway/test_session.py::TestTurns::test_marks_alone_end_a_turn_without_audio",
    ],
    "A long sentence without marks loses words": [
        f"{FIELD}::TestCutting::test_a_long_sentence_without_marks_loses_no_word",
        "gateway/test_cutting_properties.py::test_pieces_tile_the_text",
    ],
    "The last sentence waits for the next turn": [
        f"{FIELD}::TestCutting::test_the_last_sentence_does_not_wait_for_the_next_turn",
    ],
    "Markup, emoji, addresses and thinking are read aloud": [
        f"{FIELD}::TestCutting::test_what_is_not_speech_is_not_read_aloud",
        "gateway/test_spoken.py::test_cases",
    ],
    "Pieces depend on how the text was fragmented": [
        "gateway/test_cutting_properties.py::test_fragmentation_never_shows",
        "gateway/test_spoken_properties.py::test_fragmentation_never_shows",
    ],
    # -- audio --
    "Pieces are joined with a pop": [
        "gateway/test_seams.py::test_no_seam_clicks_more_than_the_voice_itself",
        "gateway/test_seams.py::test_what_breaks_off_rings_out",
    ],
    "A decoder that sees too little of what came before clicks periodically": [
        "engine/codec/test_codec_streaming.py::test_no_jump_where_pushes_meet",
        "engine/codec/test_codec_streaming.py::test_a_blind_cut_would_have_been_noticed",
    ],
    "A second of silence lies between sentences": [
        f"{FIELD}::TestAudio::test_no_second_of_silence_between_sentences",
    ],
    "The first word is lost, or the last packet": [
        f"{FIELD}::TestAudio::test_neither_the_first_nor_the_last_word_is_lost",
        "gateway/test_encoding.py::test_nothing_is_lost_or_moved",
    ],
    "An Ogg stream loses its last second": [
        "gateway/test_containers.py::test_an_ogg_file_decodes_to_exactly_what_was_spoken",
    ],
    "An Ogg stream cannot be decoded from its middle": [
        "gateway/test_containers.py::test_an_ogg_file_can_be_decoded_from_its_middle",
    ],
    "A small first chunk crackles": [
        f"{FIELD}::TestAudio::test_the_size_of_the_engines_chunks_is_not_heard",
        "gateway/test_timeline.py::test_packets_do_not_depend_on_chunks",
    ],
    "The player has no jitter buffer": [
        "gateway/test_pacing.py::TestPlayhead::test_plays_from_a_jitter_buffer_on",
        "web/test_client_modules.py::test_running_dry_ramps_and_more_is_kept_in_hand_after_it",
    ],
    "The voice drifts from piece to piece": [
        f"{FIELD}::TestAudio::test_the_voice_goes_on_from_piece_to_piece",
        "gateway/test_loudness.py::test_the_embedded_voices_are_level_in_a_mixed_session",
    ],
    "A text of one word gives noise": [
        "e2e/test_spoken_end_to_end.py::test_a_single_word_is_a_word",
    ],
    "A piece whose end is missed babbles on": [
        "gateway/test_runaway.py::test_babble_runs_into_the_length_its_text_allows",
        "gateway/test_runaway.py::test_what_nobody_heard_is_spoken_again_with_another_seed",
        "gateway/test_runaway.py::test_what_was_heard_ends_cleanly_and_the_turn_goes_on",
    ],
    # -- sessions --
    "Speech is made on for a client that is gone, or its going harms the engine": [
        "gateway/test_connection.py::test_closing_the_socket_cancels_everything_at_once",
        "gateway/test_connection.py::test_a_reset_connection_cancels_everything_at_once",
        "e2e/test_spoken_end_to_end.py::test_a_listener_that_vanishes_frees_the_engine",
    ],
    "Stale sound is heard after an interruption": [
        f"{FIELD}::TestSessions::test_nothing_stale_is_heard_after_an_interruption",
        "gateway/test_session.py::TestCancel::test_nothing_of_the_turn_follows",
    ],
    "Turns and sessions leave something behind": [
        f"{FIELD}::TestSessions::test_turns_leave_nothing_behind_in_a_long_session",
        "gateway/test_session_memory.py::test_a_session_that_is_over_is_gone_without_a_collector",
        "gateway/test_connection.py::test_two_hundred_broken_off_sessions_leave_nothing_behind",
    ],
    "A flush opens a turn": [
        f"{FIELD}::TestSessions::test_a_flush_without_a_turn_opens_none",
    ],
    "Dead sockets hold every place": [
        f"{FIELD}::TestSessions::test_dead_sockets_do_not_hold_the_slots_of_the_living",
        "gateway/test_connection.py::test_by_default_a_dead_peer_is_found_within_thirty_seconds",
    ],
    "A peer dies silently while text waits": [
        "gateway/test_connection.py::test_a_peer_that_is_silently_gone_is_found_by_pings",
    ],
    "A turn has no end, and its client hangs": [
        f"{FIELD}::TestSessions::test_an_engine_that_dies_gives_an_end_to_every_turn",
        "gateway/test_session_properties.py::test_any_order_of_events_keeps_the_promises",
    ],
    "A slow writer is timed out": [
        f"{FIELD}::TestSessions::test_a_slow_writer_is_waited_for",
    ],
    "Pings kill healthy sessions under load": [
        "gateway/test_connection.py::test_a_busy_loop_does_not_take_a_live_peer_for_dead",
        "gateway/test_connection.py::test_a_peer_that_sends_but_cannot_read_the_ping_yet_is_alive",
    ],
    "Encoding blocks the event loop": [
        f"{FIELD}::TestSessions::test_no_step_encodes_more_than_a_little",
        "gateway/test_slices.py::test_no_turn_of_the_loop_gets_more_than_its_share",
        "gateway/test_transcript.py::test_others_work_while_a_long_document_is_made",
    ],
    "A signal to stop drops live sockets": [
        "gateway/test_app.py::TestServe::test_a_signal_lets_the_turn_end",
        "gateway/test_app.py::TestDrain::test_what_was_sent_is_still_spoken",
    ],
    "Everybody reconnects at once": [
        f"{FIELD}::TestSessions::test_a_storm_of_reconnects_loses_nobody",
        "gateway/test_admission.py::test_the_more_are_refused_the_later_they_come_back",
    ],
    "A queue has no bound": [
        f"{FIELD}::TestSessions::test_a_flood_of_text_stays_bounded",
        "gateway/test_connection.py::"
        "test_a_reader_that_takes_nothing_is_dropped_and_frees_everything",
        "gateway/test_session.py::TestLimits::test_a_client_that_sends_and_never_reads_is_cut_off",
    ],
    # -- concurrency --
    "Requests at once corrupt each other": [
        f"{FIELD}::TestConcurrency::test_eight_streams_hear_their_own_pieces_in_order",
        "e2e/test_spoken_end_to_end.py::test_listeners_at_once_hear_their_own_text",
    ],
    "What is ready sooner overtakes": [
        f"{FIELD}::TestConcurrency::test_what_is_ready_sooner_does_not_overtake",
        "gateway/test_session.py::TestPieces::"
        "test_a_slow_piece_is_joined_by_the_next_and_the_order_kept",
    ],
    "Streams run dry where several are heard": [
        "gateway/test_overload.py::test_three_times_the_load",
        "engine/test_scheduler.py::test_who_is_far_ahead_rests_for_a_newcomer_and_loses_nothing",
    ],
    # -- captions, operations --
    "The transcript is longer than what was heard": [
        f"{FIELD}::TestCaptions::test_a_transcript_is_not_longer_than_what_was_heard",
        "gateway/test_transcript.py::test_a_cancelled_turn_has_what_was_heard_of_it",
    ],
    "Captions have other spaces and marks than the text": [
        f"{FIELD}::TestCaptions::test_captions_join_to_the_text_with_its_own_spaces",
    ],
    "A gateway is called healthy before it can speak": [
        "gateway/test_app.py::TestHealth::test_it_says_what_it_does_while_it_starts",
    ],
    "Something in between holds packets back and sends bursts": [
        f"{FIELD}::TestCaptions::test_packets_go_out_one_by_one_and_at_once",
        "deploy/test_nginx.py::test_sessions_pages_and_what_stays_inside",
    ],
}


@cache
def named_in(file: str) -> frozenset[str]:
    """Names of a file's tests, those in classes as `Class::test`."""
    names = set()
    for node in ast.parse((TESTS / file).read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        names |= {
            prefix + each.name
            for each in inside
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and each.name.startswith("test_")
        }
    return frozenset(names)


@pytest.mark.parametrize("failure", PROOFS)
def test_each_is_shown_not_to_happen_by_a_test_there_is(failure: str) -> None:
    for proof in PROOFS[failure]:
        file, _, name = proof.partition("::")
        assert name in named_in(file), proof
