"""The protocol: frames, both forms of a header, the fields of a request, JSON bodies.

Nothing here knows a store or what a request means.
"""
