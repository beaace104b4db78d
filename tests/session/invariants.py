"""What holds of sessions at any time, whatever has come: checked between the steps of a test."""

from __future__ import annotations

import math

from mercury.session import AdapterSessions, ClientSession, SessionState, SessionTable
from mercury.wire.packet import NO_TOKEN, TOKEN_BYTES


def check_adapter(sessions: AdapterSessions) -> None:
    check_table(sessions.table)
    for session in sessions.table:
        assert len(session.token) == TOKEN_BYTES
        assert session.token != NO_TOKEN


def check_table(table: SessionTable) -> None:
    sessions = [session for session in table._by_slot if session is not None]
    assert len(sessions) == len(table.by_token) == len(table.by_identity)
    assert int(table.active.sum()) == len(sessions)
    assert len(set(table._free)) == len(table._free)
    assert len(table._free) + len(sessions) == len(table._by_slot)
    for session in sessions:
        slot = session.slot
        assert table._by_slot[slot] is session
        assert table.by_token[session.token] is session
        assert table.by_identity[session.identity] is session
        assert table.active[slot]
        assert table.token[slot].tobytes() == session.token
        length = int(table.address_length[slot])
        assert table.address[slot, :length].tobytes() == session.address
    for slot in table._free:
        assert table._by_slot[slot] is None
        assert not table.active[slot]
        assert math.isnan(table.lat[slot])


def check_client(client: ClientSession) -> None:
    established = client.state is SessionState.ESTABLISHED
    assert (client.token != NO_TOKEN) == established or client.state is SessionState.CLOSED
    assert (client._silent_at is not None) == established
    assert (client._next_report is not None) == established
    assert (client._next_init is not None) == (client.state is SessionState.CONNECTING)
    if client.state in (SessionState.IDLE, SessionState.CLOSED):
        assert client.next_timer() is None
