from proxy.settings import masking
from proxy.settings.secret_names import is_secret


def test_secret_settings_have_the_names_of_secrets() -> None:
    """So that one in a request of the admin API is masked in its audit, as in the list of settings."""
    others = {key for key in masking._SECRETS if not is_secret(key.rpartition(".")[2])}
    # Only the credentials in these URLs are secret.
    assert others == {"traffic.directory", "tracing.endpoint"}
