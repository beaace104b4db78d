"""Load for matching: many entities on roads, open loop, against Mercury or another system."""
