"""Files of datasets on the Hugging Face Hub, each at a commit, read through huggingface_hub."""
