"""Commands about single messages: send, watch, ask what became of them."""
