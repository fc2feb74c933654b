"""The 2004 note at its own scale: 100,000 servers, K = 1000."""
