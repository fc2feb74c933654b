"""What client/_copies.c has."""

from kcast.client.native import Take

take: Take
