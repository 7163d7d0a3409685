"""One file a neighbour, each loaded only when it is asked for.

Importing this package imports none of them.
"""
