import http.server
import threading

import pytest

from adaptive_memory_bank.lab.tracking.network import check_reachable, within


def test_an_error_page_is_an_answer():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # HEAD: 501
    threading.Thread(target=server.handle_request, daemon=True).start()
    check_reachable(f"http://127.0.0.1:{server.server_port}", 10)
    server.server_close()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense"])
def test_an_address_where_nothing_answers_is_named(address):
    with pytest.raises(ConnectionError, match=f"{address} cannot be reached"):
        check_reachable(address, 5)


def test_who_takes_too_long_is_left_behind():
    never = threading.Event()
    with pytest.raises(ConnectionError, match=r"Gave up waiting after 0\.1 seconds"):
        within(0.1, never.wait, doing="waiting")
    never.set()


def test_errors_come_through():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        within(10, fail, doing="failing")
