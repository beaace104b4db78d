"""Who should have received a message, and who did: batch jobs over the history."""
