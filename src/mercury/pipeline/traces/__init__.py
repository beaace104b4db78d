"""Recorded traces in: files of any usual kind become checked positions, and rejects with a reason.

Files → texts (one module a format) → fixes (`interpret`) → checked fixes (`checks`, `jumps`) →
a table, the bus, the rejects (`tables`, `reports`); `job` puts it together.
"""
