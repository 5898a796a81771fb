"""Imported by the fork server, too, where engine processes run a compiled model."""

from __future__ import annotations

from contextlib import suppress

from torch._inductor.cpu_vec_isa import valid_vec_isa_list

# Tries each kind of vector instructions in a process of its own; what is forked remembers. Without
# a compiler it fails, but then there is no compiled model either.
with suppress(Exception):
    valid_vec_isa_list()
