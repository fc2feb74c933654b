"""A Java that is quick to start and to do little."""

# Of what runs for seconds, compiling with Java's second compiler takes longer than it saves.
OPTION = "-XX:TieredStopAtLevel=1"

QUICK = {"JDK_JAVA_OPTIONS": OPTION}
"""Variables for the environment of a process that starts a Java."""
