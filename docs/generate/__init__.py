"""Makes the reference pages of the site from the code."""
