"""The permissions that each API of Kafka's protocol needs: a guard before its handler, if there is an authorizer.

Guards of several APIs are here, by how they judge a request: as a whole, by its parts, or by its response's list.
A ``ServedApi`` has the guard of its API; ``served.guarded`` puts it before the handler.
Source: ``KafkaApis``; ApiVersions and SASL need nothing, and delegation tokens are refused anyway.
"""
