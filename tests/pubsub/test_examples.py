"""The examples in the docstrings are run."""

import pytest

from tests.support.docstring_examples import failing_examples, with_examples

EXAMPLES = {
    "kcast.pubsub.endpoint": ("format_address",),
    "kcast.pubsub.stamp": ("price_bits",),
    "kcast.pubsub.wire": ("encode_message", "encode_topic", "message_bytes"),
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_are_true(module: str) -> None:
    assert with_examples(module) == list(EXAMPLES[module])
    assert failing_examples(module) == 0
