"""Text of others for a terminal: what would move the cursor or the eye is shown, not done."""

from __future__ import annotations

# Control characters, line separators, and marks that turn the direction of writing.
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*_CONTROLS, *_DIRECTIONS)}
_ESCAPES_IN_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """One line of text without control characters: an escape sequence is seen as such."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """The same, where the text has lines and tabs of its own."""
    return text if text.isprintable() else text.translate(_ESCAPES_IN_LINES)
