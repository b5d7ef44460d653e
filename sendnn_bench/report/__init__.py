"""What people read: the console section, timeline.html and comparisons."""
