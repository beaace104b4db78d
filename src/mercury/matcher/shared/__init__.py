"""Matching by many workers: stages that pass frames to each other over the bus.

    moving ─► Roster ─► tiles ─► Lanes ─► sightings ─► Meetings ─► meetings

Each stage is a plain object for one partition of its topic: records in, records out, `snapshot`
and `restore`. What it does follows from its records alone, so whoever takes a partition over from
a worker that died comes to the same results.
"""

from __future__ import annotations
