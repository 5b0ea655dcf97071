"""By which Host and Origin a server may be called; each advice of a message is followed."""

import contextlib
import json
import re
import shlex
import socket
import subprocess
import sys

import httpx
import pytest

from ptrun.errors import UserError
from ptrun.serve.command import EXAMPLES, PARSER, _listening
from ptrun.serve.hosts import LOOPBACK, Hosts, named
from tests.serve.conftest import serving

KEY = "a-secret-of-many-letters"
OTHERS = ["gpu-7.cluster", "host.docker.internal:8000", "[::2]:80", "::2", "192.168.7.20:8000"]
OTHERS += ["evil.example:80", "127.0.0.1.x", "a'b;c"]


@pytest.fixture(scope="module")
def plain(folder):
    """Yield the address of a server that listens at one address."""
    with serving(folder) as (address, *_):
        yield address


@pytest.fixture(scope="module")
def wide(folder):
    """Yield the address of one with keys that listens at each, as --host 0.0.0.0."""
    hosts = Hosts((*LOOPBACK, "gpu-7.cluster"), addresses=True)
    with serving(folder, hosts=hosts, keys=[KEY]) as (address, *_):
        yield address


def called(address, host, path="/v1/models", **headers):
    return httpx.get(address + path, headers={"Host": host, **headers})


def advised(found):
    """Return what a message tells to type after an option, as a shell reads it."""
    _, _, rest = found.json()["error"]["message"].partition("; if it is, start it with ")
    return shlex.split(rest.removesuffix("."))


@pytest.mark.parametrize("host", OTHERS)
def test_another_host_is_refused_and_what_is_advised_helps(plain, folder, host):
    found = called(plain, host)
    assert found.status_code == 421 and "access-control-allow-origin" not in found.headers
    option, name = advised(found)
    assert option == "--name" and name == named(host)
    with serving(folder, hosts=Hosts((*LOOPBACK, named(name)))) as (address, *_):
        assert called(address, host).status_code == 200


def test_a_request_without_host_is_told_so(plain):
    found = called(plain, "")
    told = found.json()["error"]["message"]
    assert found.status_code == 421 and "Host is missing" in told and "--name" not in told


LITERAL = ["192.168.7.20", "192.168.7.20:8000", "[2001:db8::7]:8000", "[fe80::1]", "0.0.0.0:1"]
NAMES = ["gpu-7.other", "evil.example:80", "1.2.3.4.example", "127.1", "[::g]", "1.2.3.4@evil"]


@pytest.mark.parametrize("host", [*LITERAL, "GPU-7.cluster:8000", "localhost", "[::1]:9"])
def test_a_server_at_each_address_answers_any_literal_one_and_its_names(wide, host):
    assert called(wide, host, Authorization=f"Bearer {KEY}").status_code == 200
    assert called(wide, host).status_code == 401


@pytest.mark.parametrize("host", NAMES)
def test_a_server_at_each_address_refuses_names_of_others(wide, plain, host):
    for path in ("/v1/models", "/health", "/metrics"):
        assert called(wide, host, path, Authorization=f"Bearer {KEY}").status_code == 421
        assert called(plain, host, path).status_code == 421


@pytest.mark.parametrize("host", [*LITERAL, ""])
def test_probes_come_by_any_address(wide, plain, host):
    for path in ("/health", "/metrics"):
        assert called(plain, host, path).status_code == 200
        assert called(wide, host, path, Authorization=f"Bearer {KEY}").status_code == 200
    assert called(wide, host, "/health").status_code == 200
    assert called(wide, host, "/metrics").status_code == 401
    assert called(plain, host).status_code == 421


def test_a_page_of_another_origin_is_refused_and_what_is_advised_helps(plain, folder, runs):
    body = json.dumps({"model": runs["labels"].id, "input": "a"})

    def posted(address, origin, **more):
        headers = {"Origin": origin, "Content-Type": "text/plain", **more}
        return httpx.post(f"{address}/v1/classify", content=body, headers=headers)

    for origin, status in (
        ("https://evil.example", 421), ("null", 421), ("http://192.168.7.20:8000", 421),
        (plain, 200), ("http://localhost:3000", 200),
    ):  # fmt: skip
        assert posted(plain, origin).status_code == status, origin
    option, name = advised(posted(plain, "https://gpu.example:8443"))
    assert (option, name) == ("--name", "gpu.example")
    with serving(folder, hosts=Hosts((*LOOPBACK, name), addresses=True)) as (address, *_):
        assert posted(address, "https://gpu.example:8443").status_code == 200
        mine = {"Host": "192.168.7.20:8000"}
        assert posted(address, "http://192.168.7.20:8000", **mine).status_code == 200
        assert posted(address, "http://192.168.7.66", **mine).status_code == 421
        told = posted(address, "null", **mine)
        assert told.status_code == 421 and "--name" not in told.text


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("gpu-7.lab", "gpu-7.lab"), ("GPU-7:8000", "gpu-7"), ("[2001:DB8::7]", "2001:db8::7"),
        ("http://gpu-7:80", "gpu-7"), ("2001:db8:0::7", "2001:db8::7"), ("10.0.0.1:80", "10.0.0.1"),
    ],
)  # fmt: skip
def test_a_name_may_have_its_port_and_brackets(typed, shown):
    assert PARSER.parse(["RUN", "--name", typed]).name == [shown]


@pytest.mark.parametrize("name", ["*", "*.cluster", "a b", "http://gpu-7/", ""])
def test_a_name_that_no_client_sends_is_refused(name):
    with pytest.raises(UserError, match=r"--name.*expected a name or an address"):
        PARSER.parse(["RUN", "--name", name])


def test_where_it_cannot_listen_the_option_that_helps_is_named():
    with _listening("127.0.0.1", 0) as own:
        port = own.getsockname()[1]
        with pytest.raises(UserError, match="another --port, or --port 0") as told:
            _listening("127.0.0.1", port)
        assert "--host" not in str(told.value)
        for host in ("gpu-7.invalid", "203.0.113.77"):
            with pytest.raises(UserError, match="Type --host with an address of this") as told:
                _listening(host, port)
            assert ("--name gpu-7.invalid" in str(told.value)) == (host == "gpu-7.invalid")
            assert "port" not in str(told.value)
    for advised_host in ("127.0.0.1", "0.0.0.0"):
        _listening(advised_host, 0).close()


def test_both_versions_of_ip_reach_the_double_colon():
    with _listening("::", 0) as own:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, own.getsockname()[1]), timeout=5).close()


# The command itself, called at an address of this machine that is not its loopback.


def outside():
    """Return an address of this machine, as the way to another one tells it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        try:
            own.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but its loopback")
        return own.getsockname()[0]


@contextlib.contextmanager
def started(*typed):
    """Yield the port of `ptrun serve`, and the lines that it wrote as errors."""
    line = [sys.executable, "-m", "ptrun", "serve", *map(str, typed), "--port", "0"]
    errors = []
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as own:
        try:
            address = own.stdout.readline().split()[-1]
            yield address, int(address.rpartition(":")[2]), errors
        finally:
            own.terminate()
            errors.append(own.communicate(timeout=60)[1])


@pytest.mark.slow
def test_the_example_of_the_help_answers_over_the_network(folder, tmp_path):
    (example,) = [text for text in EXAMPLES.splitlines() if "0.0.0.0" in text]
    (tmp_path / "keys.txt").write_text(KEY)
    places = {"outputs/runs": folder, "keys.txt": tmp_path / "keys.txt"}
    words = [places.get(word, word) for word in shlex.split(example)[2:]]
    assert words.pop() == "hardware=gpu"
    with started(*words) as (_, port, _):
        address = f"http://{outside()}:{port}"
        for path, status in (("/health", 200), ("/metrics", 401), ("/v1/models", 401)):
            assert httpx.get(address + path).status_code == status
        headers = {"Authorization": f"Bearer {KEY}"}
        assert httpx.get(f"{address}/v1/models", headers=headers).json()["data"]
        assert httpx.get(f"{address}/metrics", headers=headers).status_code == 200
        told = called(address, "gpu-7.lab:8000")
        assert told.status_code == 421 and advised(told) == ["--name", "gpu-7.lab"]
    with started(*words, *advised(told)) as (_, port, _):
        address = f"http://{outside()}:{port}"
        assert called(address, "gpu-7.lab:8000", **headers).status_code == 200


@pytest.mark.slow
def test_without_keys_it_warns_and_each_advice_helps(folder, tmp_path):
    with started(folder, "--host", "::") as (shown, port, errors):
        assert shown == f"http://[::]:{port}"
        assert httpx.get(f"http://{outside()}:{port}/v1/models").status_code == 200
    assert "everyone who reaches it may ask" in errors[0]
    advice = re.findall(
        r"Type (--key-file) FILE|or leave (--host) out", " ".join(errors[0].split())
    )
    assert [first or second for first, second in advice] == ["--key-file", "--host"]
    (tmp_path / "keys.txt").write_text(KEY)
    with started(folder, "--host", "::", "--key-file", tmp_path / "keys.txt") as (_, port, errors):
        assert httpx.get(f"http://{outside()}:{port}/v1/models").status_code == 401
    assert "may ask" not in errors[0]
    with started(folder) as (shown, port, errors):
        assert shown == f"http://127.0.0.1:{port}"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{outside()}:{port}/v1/models")
    assert "may ask" not in errors[0]
