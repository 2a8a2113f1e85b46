"""The README's pictures, taken from the real thing: ``make screenshots``. Needs Playwright."""
