"""Pure: records inside batches and in the message formats before batches, compressed, decompressed, converted."""
