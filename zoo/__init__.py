"""Every kind of transformers model through the plain export call; the results become ``docs/zoo.md``."""
