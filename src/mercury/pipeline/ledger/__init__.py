"""Who should have heard a message, and who did: batch jobs over the history."""
