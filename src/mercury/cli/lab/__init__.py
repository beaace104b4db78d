"""Commands to try things out: simulation, load, benchmarks, development servers."""
