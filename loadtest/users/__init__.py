"""The users of a load test, for locust: who publishes and subscribes what, and when."""
