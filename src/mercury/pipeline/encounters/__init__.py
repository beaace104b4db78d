"""Who came near whom in stored reports."""
