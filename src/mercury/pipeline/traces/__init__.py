"""Imports recorded traces: files of usual formats become checked positions, and rejects.

Files → texts (one module a format) → fixes (`interpret`) → checked fixes (`checks`, `jumps`) →
a table, the bus, the rejects (`tables`, `reports`); `job` puts it together.
"""
