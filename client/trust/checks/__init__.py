"""What a list must be before it is used: the judge, and each of its checks. PROTOCOL §10.7."""
