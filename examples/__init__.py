"""Scripts to start from; each runs as it is: ``python -m examples.demo``."""
