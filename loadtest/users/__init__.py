"""The locust users of a load test: what they publish and subscribe to, when, and how processes coordinate."""
