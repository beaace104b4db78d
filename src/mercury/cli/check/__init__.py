"""Commands that look after an installation: configuration, health."""
