"""`kcast servers`: makes, publishes and checks signed lists of servers; one verb a module."""
