"""Pure: the files and records of a quorum's metadata log as bytes, Kafka 4.3.1's byte for byte."""
