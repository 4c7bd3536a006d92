"""What do the agents in Python share? One JSON line in, one JSON line out; see ../README.md for the operations."""
import json
import sys


class Refused(Exception):
    """An error of the client, with Kafka's number for it if there is one."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Lacks(Exception):
    """The client has no such feature."""


def text(data):
    return None if data is None else data.decode()


def data(text):
    return None if text is None else text.encode()


def row(topic, partition, offset, timestamp, key, value, headers):
    """A record as every agent prints it."""
    return {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp, "key": text(key),
            "value": text(value), "headers": [[name, text(value)] for name, value in headers or []]}


def serve(operations):
    """Answers until the input ends; `operations` maps a name to a function of the fields."""
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            if ask["op"] not in operations:
                raise Lacks(f"no operation {ask['op']}")
            answer = {"ok": operations[ask["op"]](ask)}
        except Lacks as why:
            answer = {"lacks": str(why)}
        except Refused as why:
            answer = {"error": {"code": why.code, "text": str(why)}}
        except Exception as why:  # whatever else the client raises is an answer too
            answer = {"error": {"code": None, "text": f"{type(why).__name__}: {why}"}}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
