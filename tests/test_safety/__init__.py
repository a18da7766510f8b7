"""Attacks on a store: kills, locks, full disks, hostile bytes. What was acknowledged stays."""
