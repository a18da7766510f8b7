"""The byte formats of a RocketMQ 4.9.3 broker store.

One module describes one entity of the format as a `construct` schema, and that schema is the only
place where its layout is written down. Everything faster is derived from it: `formats.layouts`
(generated; struct format strings and field offsets, needing no import that costs time) and the
numpy dtypes of `formats.derive`.

This package does no I/O and knows no behaviour. `formats.constants`, `formats.text`,
`formats.geometry` and `formats.layouts` import neither construct nor numpy; import nothing else of
it on a path that has to start fast. For that reason this file imports nothing.
"""
