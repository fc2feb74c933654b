"""The dumb server and the wire it speaks. Knows no ring, no view and no other server."""
