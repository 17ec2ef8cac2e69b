"""Makes the URL schemes leveret:// and leverets:// known to kombu, in every process that has leveret installed.

kombu loads no plugins for transports, only for serializers, when its messages or Celery are imported. So leveret has an
entry point in the group kombu.serializers whose loading registers the transports; what it returns is a serializer that
can neither encode nor decode, which kombu's registry allows.
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

TRANSPORTS: Final = {
    "leveret": "leveret.frameworks.kombu_transport:KombuTransport",
    "leverets": "leveret.frameworks.kombu_transport:KombuTlsTransport",
}
TRANSPORT_ALIASES.update(TRANSPORTS)

# name of the entry point -> encoder, decoder, content type, of SerializerRegistry.register
NO_SERIALIZER: Final = (None, None, "application/x-leveret-transport")
