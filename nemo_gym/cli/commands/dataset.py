"""`gym dataset …`."""

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.flag_sets import CONFIG, INPUT, MODEL_TYPE, OUTPUT, PROMPT, RESOURCES_SERVER, SEARCH_DIR
from nemo_gym.cli.flags import SwitchFlag, TextFlag

DATASET = {
    "dataset render": Command(
        "nemo_gym.cli.dataset:materialize_prompts_cli",
        "fill prompt templates from rows",
        (INPUT, PROMPT, OUTPUT, SEARCH_DIR),
        example="gym dataset render --input rows.jsonl --prompt-config prompt.yaml --output out.jsonl",
        config="nemo_gym.cli.command_configs:MaterializePromptsConfig",
    ),
    "dataset collate": Command(
        "nemo_gym.cli.dataset:prepare_data",
        "collect, check and measure the data sets a config declares",
        (
            CONFIG,
            RESOURCES_SERVER,
            MODEL_TYPE,
            SEARCH_DIR,
            TextFlag(
                names=("--mode",),
                key="mode",
                choices=("train_preparation", "example_validation"),
                help="which data sets: those for runs, or the shipped examples",
            ),
            TextFlag(names=("--output-dir",), key="output_dirpath", metavar="DIR", help="where the files are written"),
            SwitchFlag(names=("--download",), key="should_download", help="download data sets that are not there"),
        ),
        example="gym dataset collate --resources-server mcqa --mode example_validation --output-dir data",
        config="nemo_gym.train_data_utils:TrainDataProcessorConfig",
    ),
}
