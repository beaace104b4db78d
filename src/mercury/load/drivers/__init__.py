"""Drivers of load, chosen by URI: one small Protocol, and a module for each target."""
