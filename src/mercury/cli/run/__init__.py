"""Commands that run a part of Mercury."""
