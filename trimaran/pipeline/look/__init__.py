"""`trimaran look`: what a model makes of a text, as one page."""
