"""The APIs that a fault may name, and the errors that their responses can carry: of all wires together. Pure."""

from __future__ import annotations

import grpc

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.apis import FORMER_RPCS, PRE_VOTE, api_of, apis_meant
from tidegauge.kafka.apis import APIS
from tidegauge.kafka.kraft.apis import KRAFT_APIS
from tidegauge.near_names import did_you_mean
from tidegauge.v1 import lab_pb2
from tidegauge_broker.server.wire.grpc import injected_responses

_KAFKA_APIS = frozenset(api.name for api in (*APIS.values(), *KRAFT_APIS.values()))
API_NAMES = _KAFKA_APIS | {PRE_VOTE} | injected_responses.METHODS.keys() | FORMER_RPCS.keys()
"""All names that a fault may give."""


def check_api(name: str) -> None:
    """Refuse a name that no API of Kafka's protocol and no RPC has.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    if name not in API_NAMES:
        there_are = f"; there are {', '.join(sorted(API_NAMES))}"
        raise _refused(f"there is no API or RPC {name!r}{did_you_mean(name, API_NAMES, there_are, most=3)}")


def check_error(fault: lab_pb2.ErrorFault) -> None:
    """Refuse an error that no wire can word; the fault's declaration has been checked.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    check_api(fault.rpc)
    if fault.grpc_status:
        failures = [name for name in grpc.StatusCode.__members__ if name != "OK"]
        if fault.grpc_status not in failures:
            hint = did_you_mean(fault.grpc_status, failures, f"; there are {', '.join(failures)}")
            raise _refused(f"gRPC has no status {fault.grpc_status} of a failure{hint}")
        return
    if int(ErrorCode.of(fault.error)) != int(fault.error):
        raise _refused(f"there is no error with the number {fault.error}")
    apis = apis_meant(fault.rpc)
    problems = [
        injected_responses.problem(rpc, after_effect=fault.after_effect)
        for rpc in sorted(injected_responses.METHODS)
        if api_of(rpc) in apis
    ]
    if problems and all(problems) and not _KAFKA_APIS & apis:  # each response of Kafka's protocol has a place
        raise _refused(problems[0])


def _refused(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)
