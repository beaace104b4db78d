"""The gateway: matching over HTTP and websockets, in the matcher's own process."""
