"""The server side: runs inside the vLLM server and puts its scheduler on a virtual clock."""
