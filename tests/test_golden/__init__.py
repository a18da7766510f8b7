"""Tests against stores that the real RocketMQ engine wrote; see tests/golden/README.md."""
