"""A master, a copy of it, and clients, in a world whose time, network and disk are simulated.

Everything that happens is drawn from one seed: the same seed gives the same run again. The server
and the copy are the real ones, on real files; what they ask of time, network and disk is answered
here (as FoundationDB and TigerBeetle test theirs).
"""
