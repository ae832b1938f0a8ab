"""redis-py against the Redis port: the calls of a back end, over both versions of the protocol.

Arguments: the port, and the file of a certificate authority where the port speaks TLS.
"""

import sys
import threading

import redis

FIRST = 4294967297


def check(got, wanted):
    if got != wanted:
        raise SystemExit(f"got {got!r}, wanted {wanted!r}")


def main(port, authority=None):
    tls = {"ssl": True, "ssl_ca_certs": authority} if authority else {}
    for protocol, activity in ((2, 30001), (3, 30002)):
        client = redis.Redis(
            host="127.0.0.1", port=port, protocol=protocol, decode_responses=True,
            client_name="shop", **tls,
        )
        check(client.ping(), True)
        check(client.client_getname(), "shop")
        check(client.config_get("appendfsync"), {"appendfsync": "always"})
        check(client.info()["role"], "master")
        check(len(client.function_list(library="sluice")), 1)
        warm = (activity, 20001, 9900, 100, 2, 0, 253402300799999)
        check(client.fcall("sluice_warm", 1, *warm), 1)
        check(client.fcall("sluice_publish", 1, activity), 1)
        made = client.fcall("sluice_reserve", 1, activity, 7, "order-1", 1)
        reservation = FIRST + ((activity - 30001) << 32)
        check(made, [1, reservation, f"1{reservation:017}", 99])
        check(client.waitaof(1, 0, 0), [1, 0])
        found = client.fcall_ro("sluice_get", 1, activity, reservation)
        if isinstance(found, list):
            found = dict(zip(found[::2], found[1::2]))
        check(found["status"], "reserved")
        check(client.fcall("sluice_confirm", 1, activity, reservation, "pay-1"), 1)
        check(client.get(f"flashsale:stock:{activity}"), "99")
        check(client.mget(f"flashsale:count:{activity}:7", "nothing"), ["1", None])
        check(client.exists(f"flashsale:stock:{activity}"), 1)
        with client.pipeline(transaction=False) as pipeline:
            for user in range(10, 60):
                pipeline.fcall("sluice_reserve", 1, activity, user, "order-1", 1)
            answers = pipeline.execute()
        check([answer[0] for answer in answers], [1] * 50)
        check([answer[3] for answer in answers], list(range(98, 48, -1)))
        try:
            client.fcall("sluice_reserve", 1, activity, 0, "order-1", 1)
            raise SystemExit("no error for user 0")
        except redis.ResponseError as error:
            check(str(error).split(" ")[0], "INVALID")
        sold = []

        def shop(user):
            sold.append(client.fcall("sluice_reserve", 1, activity, user, "order-2", 1)[0])

        threads = [threading.Thread(target=shop, args=(user,)) for user in range(100, 180)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check((sold.count(1), sold.count(0)), (49, 31))
        client.close()
    print("redis-py", redis.__version__, "is content")


main(int(sys.argv[1]), *sys.argv[2:])
