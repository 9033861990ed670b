"""`chatmill push`: a dataset is uploaded to a repository of the Hugging Face Hub."""
