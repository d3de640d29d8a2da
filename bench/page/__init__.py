"""How smoothly the page shows a fast answer below a long conversation, in a real browser."""
