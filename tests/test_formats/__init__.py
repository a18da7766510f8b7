"""Tests of `formats`: the derived layouts equal the schemas, and hostile bytes are refused."""
