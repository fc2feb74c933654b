"""What client/receiving/_copies.c has."""

from kcast.client.receiving.native import Take

take: Take
