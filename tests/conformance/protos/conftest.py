"""The contract's test.proto gives test_pb2.py and a TestServiceStub, which are no tests."""

collect_ignore = ["grpc"]
