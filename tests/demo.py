"""What `make run` does: a real name server and broker, and the proxy before them, until interrupted.

python -m tests.demo --dir build/run --listen 127.0.0.1:8080
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "peers" / "peers"
TOPIC = "demo"

_BANNER = """
Gantry serves RocketMQ remoting clients at {listen}
  the cluster behind it: name server {namesrv}, broker {broker}; files in {directory}

  Java    producer.setNamesrvAddr("{listen}");   // consumers alike; nothing else changes
  Go      producer.WithNsResolver(primitive.NewPassthroughResolver([]string{{"{listen}"}}))

  Try it from another terminal (topic `{topic}` is there):
    tests/peers/peers client java-remoting roundtrip 20 --endpoint {listen} --topic {topic} --group demo

Ctrl-C stops everything.
"""


def peers(*words: str) -> str:
    """Run a command of the kit; what it prints."""
    return subprocess.run([str(PEERS), *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    """Run until interrupted; the proxy's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default="build/run")
    parser.add_argument("--listen", default="127.0.0.1:8080")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("starting a name server and a broker (the first time this downloads RocketMQ) …", flush=True)
    try:
        ports = ("--namesrv-port", "0", "--broker-port", "0")
        # What an earlier run that was killed has left.
        peers("stop", "--dir", options.dir)
        addresses = json.loads(peers("start", "--dir", options.dir, *ports))["addresses"]
        peers("topic", TOPIC, "--dir", options.dir)
        return _serve(options.listen, options.dir, addresses)
    except KeyboardInterrupt:
        return 0
    except subprocess.CalledProcessError:
        return 1  # the kit has said why
    finally:
        peers("stop", "--dir", options.dir)


def _serve(listen: str, directory: str, addresses: dict[str, str]) -> int:
    command = [sys.executable, "-m", "proxy", "serve", "--listen", listen, "--namesrv", addresses["namesrv"]]
    # Of its own session: Ctrl-C reaches us, and we end it before the cluster.
    proxy = subprocess.Popen(command, env=os.environ, start_new_session=True)
    try:
        time.sleep(1)
        if proxy.poll() is None:
            places = {"namesrv": addresses["namesrv"], "broker": addresses["broker"]}
            print(_BANNER.format(listen=listen, directory=directory, topic=TOPIC, **places), flush=True)
        return proxy.wait()
    except KeyboardInterrupt:
        proxy.terminate()
        return proxy.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            proxy.kill()


if __name__ == "__main__":
    sys.exit(main())
