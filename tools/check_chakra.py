#!/usr/bin/env python3
"""Reads files that `motet plan --trace-format chakra` wrote with Google's protobuf runtime (PyPI: protobuf) against the
part of the Chakra schema (MLCommons, et_def.proto) that they use, and runs them: every node's dependencies come before
it, every send meets its receive.

    motet plan ... --trace step --trace-format chakra
    tools/check_chakra.py step
"""

import collections
import glob
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
NODES = {2: "MEM_LOAD", 3: "MEM_STORE", 4: "COMP", 5: "COMM_SEND", 6: "COMM_RECV", 7: "COMM_COLL"}
MESSAGES = {  # name: (field, number, type, repeated)
    "AttributeProto": [("name", 1, FIELD.TYPE_STRING, False), ("int32_val", 7, FIELD.TYPE_INT32, False), ("int64_val", 9, FIELD.TYPE_INT64, False),
                       ("uint64_val", 13, FIELD.TYPE_UINT64, False), ("bool_val", 27, FIELD.TYPE_BOOL, False), ("string_val", 29, FIELD.TYPE_STRING, False)],
    "GlobalMetadata": [("version", 1, FIELD.TYPE_STRING, False)],
    "Node": [("id", 1, FIELD.TYPE_UINT64, False), ("name", 2, FIELD.TYPE_STRING, False), ("type", 3, FIELD.TYPE_INT32, False), ("data_deps", 5, FIELD.TYPE_UINT64, True),
             ("start_time_micros", 6, FIELD.TYPE_UINT64, False), ("duration_micros", 7, FIELD.TYPE_UINT64, False), ("attr", 10, ".chakra.AttributeProto", True)],
}


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            made = message.field.add(name=field, number=number, label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL)
            if isinstance(kind, str):
                made.type, made.type_name = FIELD.TYPE_MESSAGE, kind
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}")) for name in MESSAGES}


def messages(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield data[at:at + size]
        at += size


def strict(kind, content):
    """The message; fields that the schema does not have are an error."""
    message = kind.FromString(content)
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        sys.exit(f"unknown fields beside {message}")
    return message


def main(stem):
    kinds, sends, receives, nodes, types = classes(), collections.Counter(), collections.Counter(), 0, collections.Counter()
    paths = sorted(glob.glob(f"{glob.escape(stem)}.*.et"))
    if not paths:
        sys.exit(f"there are no files {stem}.*.et")
    for path in paths:
        rank = int(path.split(".")[-2])
        content = list(messages(path))
        if strict(kinds["GlobalMetadata"], content[0]).version == "":
            sys.exit(f"{path}: no version")
        seen = set()
        for raw in content[1:]:
            node = strict(kinds["Node"], raw)
            if node.type not in NODES or node.id in seen or not set(node.data_deps) <= seen:
                sys.exit(f"{path}: node {node.id} ({node.name}): type {node.type}, dependencies {list(node.data_deps)}")
            seen.add(node.id)
            attributes = {attr.name: attr for attr in node.attr}
            types[NODES[node.type]] += 1
            if node.type in (5, 6):
                source, destination = attributes["comm_src"].int32_val, attributes["comm_dst"].int32_val
                if rank != (source if node.type == 5 else destination):
                    sys.exit(f"{path}: node {node.id} is not this rank's")
                (sends if node.type == 5 else receives)[source, destination, attributes["comm_tag"].int32_val, attributes["comm_size"].int64_val] += 1
        nodes += len(seen)
    if sends != receives:
        sys.exit(f"sends and receives differ: {(sends - receives) + (receives - sends)}")
    print(f"{len(paths)} ranks, {nodes} nodes: {dict(sorted(types.items()))}; every send has its receive")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
