"""Commands about stored data: history, import, replay."""
