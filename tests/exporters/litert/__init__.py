"""The LiteRT format."""
