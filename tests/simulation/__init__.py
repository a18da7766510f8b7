"""A master, a copy of it, and clients, in a world whose time, network and disk are simulated.

Everything that happens is drawn at random from one seed: the same seed gives the same run again.
The code of the server and the copy is the real one, and works on real files; the clock, the network
and the disk that it uses are simulated here (as FoundationDB and TigerBeetle test their databases).
"""
