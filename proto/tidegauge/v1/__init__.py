"""Generated protobuf and gRPC code, checked in. Change the .proto files and run ``make proto``."""
