"""What each API of Kafka's protocol needs to be allowed: a guard before its handler, where there is an authorizer.

Guards of several APIs stand here, by how they judge a request: as a whole, by its parts, or by what its response lists.
A ``ServedApi`` has the guard of its API; ``served.guarded`` puts it before the handler.
Source: ``KafkaApis``; ApiVersions and SASL need nothing, and delegation tokens are refused anyway.
"""
