"""PosGPT's commands, training, evaluation and page; `modeling_posgpt` holds the model, `data_scripts` the data."""

__version__ = "0.4.0"
