"""`kcast demo`: publishes text while servers are killed, and compares what arrives with theory."""
