"""What commands share: options, output, parsing."""
