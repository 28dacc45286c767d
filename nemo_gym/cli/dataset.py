"""`gym dataset`: rows collected from configs, and rows filled into prompts."""


def prepare_data() -> None:
    """Collate, check and measure the data sets a config declares; needs no model."""
    from nemo_gym.cli.composing import without_model
    from nemo_gym.train_data_utils import TrainDataProcessor

    TrainDataProcessor().run(without_model())


def materialize_prompts_cli() -> None:
    """Fill a prompt template from every row of a file and write the rows."""
    from nemo_gym.cli.command_configs import MaterializePromptsConfig
    from nemo_gym.cli.composing import without_model
    from nemo_gym.config.errors import ConfigError
    from nemo_gym.prompt import materialize_prompts

    config = MaterializePromptsConfig.model_validate(without_model())
    try:
        count = materialize_prompts(config.input_jsonl_fpath, config.prompt_config, config.output_jsonl_fpath)
    except ConfigError:
        raise
    except ValueError as error:  # rows that have an input already
        raise ConfigError(str(error)) from error
    print(f"Wrote {count} rows to {config.output_jsonl_fpath}.")
