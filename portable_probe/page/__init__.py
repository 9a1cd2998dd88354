"""A page of several runs and devices: `portable-softmax report RUN...` makes HTML and Markdown of what they left behind."""
