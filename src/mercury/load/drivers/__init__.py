"""Where load goes to, chosen by URI: one small Protocol, and a file for each way there."""
