from setuptools import setup

REPORT = ["scikit-learn>=1.5", "rapidfuzz>=3", "jinja2>=3.1", "matplotlib>=3.9"]

setup(
    name="posgpt",
    version="0.1.0",
    description="What does a small GPT know, and how does the way it encodes positions change that?",
    python_requires=">=3.11",
    packages=["modeling_posgpt", "data_scripts", "reporting", "demo"],
    package_data={"reporting": ["*.jinja"], "demo": ["*.jinja"]},
    py_modules=["training", "optimizers", "train_pretrain", "train_finetune", "evaluate_birthplace"],
    install_requires=[
        "torch>=2.9",
        "transformers>=5.20,<6",
        "datasets>=5,<6",
        "tokenizers>=0.22",
        "accelerate>=1.10",
        "evaluate>=0.4.6",
        "huggingface_hub>=2",
        "numpy>=2",
        "psutil>=5.9",
        "pyyaml>=6",
        "tensorboard>=2.16",
        "tqdm",
    ],
    extras_require={
        "study": ["matplotlib>=3.9"],
        "report": REPORT,
        "demo": [*REPORT, "gradio>=6"],
        "test": ["pytest>=8", "hypothesis>=6", "ruff>=0.12", "selenium>=4.20"],
    },
)
