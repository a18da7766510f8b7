"""The timer's files of 5.x, for reading: the wheel, the log behind it, the check point."""
