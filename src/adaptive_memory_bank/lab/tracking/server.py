"""The W&B server: never prompts for a login, never waits forever."""

from adaptive_memory_bank.lab.tracking.network import check_reachable

PATIENCE = 15.0  # seconds until a server counts as out of reach


def check_server(patience: float = PATIENCE) -> str:
    """Return the server's address.

    Raises:
        ValueError: Where nobody is logged in.
        ConnectionError: Where the server does not answer.
    """
    import wandb

    from adaptive_memory_bank.lab.tracking.wandb_run import is_logged_in

    if not is_logged_in():
        raise ValueError("Not logged in to W&B. Run `wandb login`, or set WANDB_API_KEY.")
    address = str(wandb.setup().settings.base_url)
    try:
        check_reachable(address, patience)
    except ConnectionError as error:
        raise ConnectionError(f"W&B at {error}") from error
    return address
