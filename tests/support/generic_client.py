"""A gRPC client that knows no protos beforehand: it asks the server for them by reflection, as grpcurl does."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import grpc.aio
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2

PATIENCE = 60.0


def pool_of(files: Any) -> DescriptorPool:
    """A pool that knows only what the server said."""
    pool = DescriptorPool()
    known = {file.name: file for file in map(FileDescriptorProto.FromString, files)}

    def add(name: str) -> None:
        if file := known.pop(name, None):
            for dependency in file.dependency:
                add(dependency)
            pool.Add(file)

    for name in list(known):
        add(name)
    return pool


class GenericClient:
    """Calls methods of one service by their names, with requests and responses as JSON."""

    def __init__(self, channel: grpc.aio.Channel, service: str, pool: DescriptorPool) -> None:
        self._channel = channel
        self._service = service
        self._pool = pool
        self._methods = pool.FindServiceByName(service).methods_by_name

    @classmethod
    async def connect(cls, channel: grpc.aio.Channel, service: str, *types: str) -> Self:
        """Learn the service, and types that may be packed in its messages."""
        call = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )()
        files: dict[bytes, None] = {}
        for symbol in (service, *types):
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
            answer = await asyncio.wait_for(call.read(), PATIENCE)
            assert answer.WhichOneof("message_response") == "file_descriptor_response", answer
            files |= dict.fromkeys(answer.file_descriptor_response.file_descriptor_proto)
        await call.done_writing()
        return cls(channel, service, pool_of(files))

    def _coding(self, name: str) -> dict[str, Any]:
        method = self._methods[name]
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        return {
            "request_serializer": lambda fields: json_format.ParseDict(fields, request()).SerializeToString(),
            "response_deserializer": lambda answer: json_format.MessageToDict(
                response.FromString(answer), preserving_proto_field_name=True, descriptor_pool=self._pool
            ),
        }

    async def fetch(self, name: str, **fields: Any) -> dict[str, Any]:
        """Call a unary method."""
        call = self._channel.unary_unary(f"/{self._service}/{name}", **self._coding(name))
        answer: dict[str, Any] = await call(fields, timeout=PATIENCE)
        return answer

    def stream(self, name: str) -> Any:
        """Open a call of a streaming method."""
        return self._channel.stream_stream(f"/{self._service}/{name}", **self._coding(name))()
