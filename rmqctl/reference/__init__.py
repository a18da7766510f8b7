"""The pages of ``docs/reference`` that follow from the code: ``python -m rmqctl.reference``."""
