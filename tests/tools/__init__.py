"""The programs in `tools`."""
