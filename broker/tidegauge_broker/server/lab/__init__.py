"""The lab's hand in a broker: loaded only with ``lab.enable=true``."""
