"""The app as Django lists it."""

from __future__ import annotations

from django.apps import AppConfig


class Postroom(AppConfig):
    """Brings commands, and no models."""

    name = "postroom.django"
    label = "postroom"
